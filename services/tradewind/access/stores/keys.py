"""Every key of the access service.

All keys of a user share the tag `{a<p>}`, the partition of the user's id, so that a script may touch them all.

| key | kind | holds | until |
| --- | --- | --- | --- |
| `user:<user>` | hash | role, when it was set, and the time zone | for ever, one per user |
| `users` | zset | users, all with score 0: in the order of their ids | for ever, one entry per user |
| `session:<digest>` | hash | user, kind, label, times; the digest is that of the token | 1 h after its end, at most |
| `sessions:<user>` | zset | digests of the user's sessions, by when they were made | 1 h after the latest end of them |
| `rate_limit:<user>:<endpoint>` | zset | admitted calls by time, at most as many as the limit | its period |
| `quota:<user>:<date>` | hash | calls that count for a day of the user's time zone, by endpoint | 1 h after the day |
| `data_version` | string | version of the data and number of partitions | one, in partition 0 |
| `changes` | channel | ids of users whose role or sessions changed | nothing is kept |
"""

from tradewind.server.partitions import partition_of
from tradewind.server.redis.acl import AclUser

DEFAULT_PREFIX = "trading_flow"

ACL = AclUser("access", (f"{DEFAULT_PREFIX}:{{a*",), (f"{DEFAULT_PREFIX}:{{a*",))
"""The store user of this service."""


class Keys:
    """Formats the keys of a prefix."""

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        self._prefix = prefix

    def base(self, partition: int) -> str:
        return f"{self._prefix}:{{a{partition}}}:"

    def data_version(self) -> str:
        return f"{self.base(0)}data_version"

    def user(self, user_id: str) -> str:
        return f"{self.base(partition_of(user_id))}user:{user_id}"

    def users(self, partition: int) -> str:
        return f"{self.base(partition)}users"

    def sessions(self, user_id: str) -> str:
        return f"{self.base(partition_of(user_id))}sessions:{user_id}"

    def session(self, partition: int, digest: str) -> str:
        return f"{self.base(partition)}session:{digest}"

    def rate_limit(self, user_id: str, endpoint: str) -> str:
        return f"{self.base(partition_of(user_id))}rate_limit:{user_id}:{endpoint}"

    def quota(self, user_id: str, date: str) -> str:
        return f"{self.base(partition_of(user_id))}quota:{user_id}:{date}"

    def changes(self) -> str:
        return f"{self.base(0)}changes"
