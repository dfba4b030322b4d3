r"""Every key of the node task manager.

All keys of a shard carry the tag `{s<shard>}`, so that any script may touch any of them. `<run>` is
`<flow_id>:<cycle>:<run>`, or `task:<id>` or `batch:<id>` outside any flow; the only node of a task adds nothing to it.

| key | kind | holds | until |
| --- | --- | --- | --- |
| `plan:<digest>` | hash | structure and configs of a component | 30 d after its last use, ad hoc 25 h |
| `run:<run>` | hash | everything about a run, see below | 24 h or `keep_for` from its end |
| `kept:<run>:<component>` | list | nodes of a rerun whose results have yet to be taken over | empties itself |
| `items:<run>:<node>` | list | items of a mapped node that have not begun | empties itself |
| `stop:<run>[:<component>]` | string | who stopped it, why, when | 1 h after the cycle's deadline, 8 d without one |
| `flow_runs:<flow>` | zset | the latest run `<cycle>:<run>` of each cycle by number, open ones on top | with the run |
| `purged:<flow>` | string | when the flow was purged; when all of it is gone, also its epoch | 1 h |
| `node_tasks_list` | zset | node tasks by creation | go with the run; swept from a day on |
| `to_clean` | zset | `run:`, `worker:`, `flow:`, `dead_letters:` and a name, by when to check it | empties itself |
| `walks` | list | ended runs that are being removed, and how far each is | empties itself |
| `cleaner` | string | the replica that cleans | 15 s after its last step |
| `queue:cleaned` | hash | how much was removed | kept, one |
| `ready:<type>:<user>` | zset | ready node tasks by age; a step of priority is worth a minute | empties itself |
| `ring:<type>` | zset | users with ready node tasks, by turns taken | empties itself |
| `left:<type>` | zset | where users stood who left the ring; for the user "", its last turn | goes with the ring |
| `ready_types` | zset | node types with ready node tasks, by last turn | empties itself |
| `delayed` | zset | node tasks by when they may begin or go on; limits (`\|<limit>`) likewise | empties itself |
| `retries:<flow>` | hash | attempts begun and retries granted, per five seconds | 65 s |
| `dead_letters:<user>` | zset | node tasks that were given up, by when; the newest 10 000 | 8 d after the last |
| `start_deadlines` | zset | ready node tasks by the end of their wait | empties itself |
| `blocked:<limit>\|<type>:<user>:<most>` | zset | ready node tasks that wait for a limit | empties itself |
| `blocked_by:<limit>` | set | the groups that wait for a limit | empties itself |
| `blocked_of` | zset | the same groups, by user | empties itself |
| `parked` | zset | users at their limit, each with a type that they have a queue of | empties itself |
| `bucket:<type>`, `bucket:<user>:<key>` | string | when a bucket of tokens is full, in us | a minute after that |
| `slots:<limit>` | zset | node tasks that hold a slot, by when they began | empties itself |
| `system:config` | hash | limits of the system and their version | kept, one |
| `user_weights` | hash | weights of users in taking turns | kept, one |
| `inflight` | zset | running node tasks by lease deadline | empties itself |
| `worker_tasks:<worker>` | zset | node tasks of a worker by lease deadline | empties itself |
| `worker_session:<worker>` | string | number of its latest stream | 8 d after it was last seen |
| `worker_incarnation:<worker>` | string | process behind its latest stream | 8 d after it was last seen |
| `replicas` | zset | node task managers by the end of their presence; first shard only | 10 min after the last |
| `connected` | zset | node task managers by how long their reports, next line, are valid | 30 s after the last |
| `connected:<replica>` | hash | since when each `worker:<id>` is connected there; each `type:<type>` offered | 30 s |
| `last_offer:<type>` | string | which worker offered it last, and until when, while none does | 24 h |
| `data_version` | string | version of the data and number of shards; first shard only | kept, one |
| `queue:stats` | hash | how many node tasks ended, by status, and failed by code | kept, one |
| `todo` | list | work that a script left for later ones | empties itself |
| `events:<partition>` | stream | events for the scheduler | acknowledged |
| `last_events` | hash | id of the last event of each partition | kept, one |
| `events_epoch:<partition>` | string | highest epoch of a subscription | kept, one per partition |
| `logs:<ad-hoc run>` | stream | log lines of its nodes, newest 10 000 | 24 h after the last |
| `user_runs:<user>:<kind>` | zset | tasks, batches of a user by submission, open ones on top | swept by `clean` |
| `ended_runs` | zset | ended tasks and batches by when they expire | swept by `clean` |
| `told:<run>` | string | that watchers of a task or batch were notified just now | 100 ms |
| `task_events:<node task>` | stream | events of an ad-hoc or watched node task, newest 250 | 24 h from its end |
| `notifications:<user>` | stream | notifications of a user, newest 1000 | 7 d after the last |
| `notifications_read:<user>` | string | up to where they are read | 7 d after it was set |
| `notified:<user>:<what>` | string | when a user may be notified of something again | 1 min of a flow, else 24 h |
| `logs:<flow>:<cycle>` | stream | log lines of nodes, 10 000; for older cycles 100 | newest 100 cycles, 8 d |
| `flow_logs:<flow>` | zset | cycles that have logs | 8 d after the last |
| `cache:<name>:<digest>` | string | a result, its generation and end | 90 to 100 % of its time to live |
| `cache_flights:<name>:<digest>` | string | which attempt works the result out | a lease after its last renewal |
| `cache_index:<name>` | zset | results by their end | as the last of them |
| `cache_generation:<name>` | string | the generation; results of any other do not count | 400 d after the last use |
| `cache_stats` | hash | outcomes of look-ups, by cache; first shard only | kept, one |
| `wake` | channel | news of a ready node type, events, a stop, a run, a result, the config, a notification | |

The hash of a run holds its inputs, `keep`, how many signals are kept, and, unless its only component is `0`, its
run_id, components and how many of them are open. Fields of a component begin with `<component>/`: the `facts` from its
beginning, its `state` (status and usual counts of nodes) once that has changed, and rarer fields. Fields of a node task
begin with `<node>:` (`<node>:<item>:` for an item of a mapped node, `:` for a task): its `state` (status, attempt,
lease, times), `input` or `in:<edge>`, `out:<handle>`, `signals` that came too early, and rarer fields.

Keys of caches, except `cache_stats`, are in the caches' own store if there is one. Any of them may vanish there at any
time; the result is then worked out again.

Keys of an open run have no time to live, nor has its plan: the scheduler must end or purge it.
"""

from tradewind.node_task_manager.domain.caching import Entry
from tradewind.server.redis.acl import AclUser

CACHE_ACL = AclUser("node_task_manager_cache", patterns=("trading_flow:{s*}:cache:*", "trading_flow:{s*}:cache_*"))
"""For a store that holds nothing but caches."""
ACL = AclUser("node_task_manager", patterns=("trading_flow:{s*",), channels=("trading_flow:{s*",))


class Keys:
    """Builds the keys of one shard."""

    def __init__(self, prefix: str, shard: int) -> None:
        self.base = f"{prefix}:{{s{shard}}}:"
        self.wake = self.base + "wake"

    def plan(self, digest: str) -> str:
        return f"{self.base}plan:{digest}"

    def data_version(self) -> str:
        return f"{self.base}data_version"

    def run(self, run: str) -> str:
        return f"{self.base}run:{run}"

    def worker_tasks(self, worker_id: str) -> str:
        return f"{self.base}worker_tasks:{worker_id}"

    def replicas(self) -> str:
        return f"{self.base}replicas"

    def connected(self) -> str:
        return f"{self.base}connected"

    def connected_to(self, replica: str) -> str:
        return f"{self.base}connected:{replica}"

    def last_offer(self, node_type: str) -> str:
        return f"{self.base}last_offer:{node_type}"

    def inflight(self) -> str:
        return f"{self.base}inflight"

    def dead_letters(self, user_id: str) -> str:
        return f"{self.base}dead_letters:{user_id}"

    def ready_types(self) -> str:
        return f"{self.base}ready_types"

    def ring(self, node_type: str) -> str:
        return f"{self.base}ring:{node_type}"

    def ready(self, node_type: str, user_id: str) -> str:
        return f"{self.base}ready:{node_type}:{user_id}"

    def totals(self) -> str:
        return f"{self.base}queue:stats"

    def cleaned(self) -> str:
        return f"{self.base}queue:cleaned"

    def slots(self, limit: str) -> str:
        return f"{self.base}slots:{limit}"

    def bucket(self, node_type: str) -> str:
        return f"{self.base}bucket:{node_type}"

    def parked(self) -> str:
        return f"{self.base}parked"

    def blocked_of(self) -> str:
        return f"{self.base}blocked_of"

    def blocked(self, group: str) -> str:
        return f"{self.base}blocked:{group}"

    def system_config(self) -> str:
        return f"{self.base}system:config"

    def user_weights(self) -> str:
        return f"{self.base}user_weights"

    def cached(self, entry: Entry) -> str:
        return f"{self.base}cache:{entry}"

    def cache_flight(self, entry: Entry) -> str:
        return f"{self.base}cache_flights:{entry}"

    def cache_index(self, name: str) -> str:
        return f"{self.base}cache_index:{name}"

    def cache_generation(self, name: str) -> str:
        return f"{self.base}cache_generation:{name}"

    def cleaner(self) -> str:
        return self.base + "cleaner"

    def cache_stats(self) -> str:
        return f"{self.base}cache_stats"

    def events(self, partition: int) -> str:
        return f"{self.base}events:{partition}"

    def events_epoch(self, partition: int) -> str:
        return f"{self.base}events_epoch:{partition}"

    def logs(self, log: str) -> str:
        return f"{self.base}logs:{log}"

    def user_runs(self, user_id: str, kind: str) -> str:
        return f"{self.base}user_runs:{user_id}:{kind}"

    def task_events(self, task_id: str) -> str:
        return f"{self.base}task_events:{task_id}"

    def notifications(self, user_id: str) -> str:
        return f"{self.base}notifications:{user_id}"

    def notifications_read(self, user_id: str) -> str:
        return f"{self.base}notifications_read:{user_id}"
