"""Every key of the registry.

All keys carry the tag `{registry}`, so that any script may touch any of them. Times are epoch ms.

| key | kind | holds | until |
| --- | --- | --- | --- |
| `workers:<id>` | hash | what a worker reports about itself, its times, its status | 24 h after it is offline |
| `node_types:<type>` | hash | the latest declaration of a node type | 24 h after nobody offers it |
| `node_types:<type>:workers` | zset | workers that offer it, by last heartbeat | 60 s after the last of them |
| `alive` | zset | workers on record, by last heartbeat: alive while that is younger than 60 s | swept |
| `worker_ids` | zset | workers on record, all with score 0: in the order of their ids | swept |
| `loads` | zset | workers on record that are not draining, by running / capacity | swept |
| `called` | zset | workers on record that have an api_url, all with score 0 | swept |
| `node_type_names` | zset | declared node types, all with score 0: in the order of their names | swept |
| `node_type_lapses` | zset | declared node types, by when the declaration lapses | swept |
| `data_version` | string | version of the data | for ever |

The swept keys are bounded by `Limits.workers` and `Limits.node_types`.
"""

from tradewind.server.redis.acl import AclUser

ACL = AclUser("registry", patterns=("trading_flow:{registry}:*",))


class Keys:
    """Builds the keys."""

    def __init__(self, prefix: str) -> None:
        base = f"{prefix}:{{registry}}:"
        self.workers = base + "workers:"
        self.node_types = base + "node_types:"
        self.indexes = tuple(
            base + name for name in ("alive", "worker_ids", "loads", "node_type_names", "node_type_lapses", "called")
        )

        self.data_version = base + "data_version"

    def worker(self, worker_id: str) -> str:
        return self.workers + worker_id

    def node_type(self, name: str) -> str:
        return self.node_types + name

    def offering(self, name: str) -> str:
        return f"{self.node_types}{name}:workers"
