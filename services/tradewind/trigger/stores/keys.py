"""The table of this context's keys; all keys of a partition share the tag `{t<p>}`, so a script may touch them all.

key, behind `<prefix>:{t<p>}:`   what                                                    kept
trigger:<id>                     hash: a trigger                                         while it will fire; 7 d after
removed_triggers:<id>            "<epoch>:<until ms>" of a removed trigger               1 h
triggers:due                     zset: id -> when to deliver it                          one entry per scheduled trigger
triggers:claimed                 zset: id -> when its lease lapses                       one entry per claimed trigger
triggers:dead                    zset: id -> when it died                                the newest 1000, 7 d
triggers:firings                 stream: the fire history                                the newest 1000
triggers:receiver                hash: epoch and session of who receives the partition   for ever, one per partition
triggers:wake                    channel: something is due earlier, another receives     nothing is kept
"""

from tradewind.server.redis.acl import AclUser

DEFAULT_PREFIX = "trading_flow"

ACL = AclUser("trigger", (f"{DEFAULT_PREFIX}:{{t*",), (f"{DEFAULT_PREFIX}:{{t*",))
"""The store user of this service."""


class Keys:
    """Formats keys; nothing else does."""

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        self._prefix = prefix

    def _key(self, partition: int, name: str) -> str:
        return f"{self._prefix}:{{t{partition}}}:{name}"

    def trigger(self, partition: int, trigger_id: str) -> str:
        return self._key(partition, f"trigger:{trigger_id}")

    def removed(self, partition: int, trigger_id: str) -> str:
        return self._key(partition, f"removed_triggers:{trigger_id}")

    def due(self, partition: int) -> str:
        return self._key(partition, "triggers:due")

    def claimed(self, partition: int) -> str:
        return self._key(partition, "triggers:claimed")

    def dead(self, partition: int) -> str:
        return self._key(partition, "triggers:dead")

    def firings(self, partition: int) -> str:
        return self._key(partition, "triggers:firings")

    def receiver(self, partition: int) -> str:
        return self._key(partition, "triggers:receiver")

    def wake(self, partition: int) -> str:
        return self._key(partition, "triggers:wake")
