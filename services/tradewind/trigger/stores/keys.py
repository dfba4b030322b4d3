"""The table of this context's keys; all keys of a partition share the tag `{t<p>}`, so a script may touch them all.

key, after `<prefix>:{t<p>}:`    what                                                    kept
trigger:<id>                     hash: a trigger                                         while it will fire; 7 d after
trigger:<id>:<event hash>        hash: one firing of a trigger for an event              until acknowledged; dead 7 d
removed_triggers:<id>            "<epoch>:<until ms>" of a removed trigger               1 h
removed_triggers:<id>:<hash>     the same for an acknowledged firing                     24 h
triggers:due                     zset: id -> when to deliver it                          one entry per scheduled trigger
triggers:claimed                 zset: id -> when its lease lapses                       one entry per claimed trigger
triggers:dead                    zset: id -> when it died                                the newest 1000, 7 d
triggers:firings                 stream: the fire history                                the newest 1000
triggers:receiver                hash: epoch and session of the partition's receiver     for ever, one per partition
triggers:alarms                  hash: how many index entries without a trigger came up  for ever, one per partition
triggers:wake                    channel: earlier due time, new receiver, new listener   nothing is kept
triggers:queues                  set: names of the queues whose triggers are here        while they have triggers
data_version                     string: version of the data and number of partitions    one, in partition 0
events:<name>                    hash: <queue>/<id> -> schedule of a listening trigger   one entry per waiting trigger

These are the keys of the flows' triggers. Each queue has its own set of the keys from `trigger:<id>` to
`triggers:alarms`, after `queue:<name>:`, in the partition of its name, and the key below. Once the queue has no
triggers, its alarms are deleted and its history is kept for 7 d.

queue:<name>:triggers:all        zset: id -> when it was created                         one entry per trigger
"""

from tradewind.server.redis.acl import AclUser

DEFAULT_PREFIX = "trading_flow"

ACL = AclUser("trigger", (f"{DEFAULT_PREFIX}:{{t*",), (f"{DEFAULT_PREFIX}:{{t*",))
"""The store user of this service."""


class Keys:
    """Formats the keys of the flows' triggers or of a queue; no other code does."""

    def __init__(self, prefix: str = DEFAULT_PREFIX, queue_name: str = "") -> None:
        self._prefix = prefix
        self._queue = queue_name

    def of_queue(self, name: str) -> "Keys":
        """Return the keys of a queue under the same prefix, or those of the flows when its name is empty."""
        return Keys(self._prefix, name)

    def base(self, partition: int) -> str:
        """Return the beginning of every key of a partition."""
        return self._shared(partition, "")

    def _shared(self, partition: int, name: str) -> str:
        return f"{self._prefix}:{{t{partition}}}:{name}"

    def _key(self, partition: int, name: str) -> str:
        return self._shared(partition, f"queue:{self._queue}:{name}" if self._queue else name)

    def data_version(self) -> str:
        return self._shared(0, "data_version")

    def trigger(self, partition: int, trigger_id: str) -> str:
        return self._key(partition, f"trigger:{trigger_id}")

    def removed(self, partition: int, trigger_id: str) -> str:
        return self._key(partition, f"removed_triggers:{trigger_id}")

    def index(self, partition: int, name: str) -> str:
        return self._key(partition, f"triggers:{name}")

    def due(self, partition: int) -> str:
        return self.index(partition, "due")

    def claimed(self, partition: int) -> str:
        return self.index(partition, "claimed")

    def dead(self, partition: int) -> str:
        return self.index(partition, "dead")

    def firings(self, partition: int) -> str:
        return self._key(partition, "triggers:firings")

    def receiver(self, partition: int) -> str:
        return self._key(partition, "triggers:receiver")

    def alarms(self, partition: int) -> str:
        return self._key(partition, "triggers:alarms")

    def all(self, partition: int) -> str:
        return self.index(partition, "all")

    def wake(self, partition: int) -> str:
        return self._shared(partition, "triggers:wake")

    def queues(self, partition: int) -> str:
        return self._shared(partition, "triggers:queues")

    def event(self, partition: int, name: str) -> str:
        return self._shared(partition, f"events:{name}")
