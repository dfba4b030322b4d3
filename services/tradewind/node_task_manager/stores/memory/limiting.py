"""Limits in memory: what may run, what is held back, and what happens when a key is full."""

import math
from collections import Counter
from collections.abc import Callable

from tradewind.node_task_manager.domain.concurrency import WhenFull
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.stores.memory.clocks import MemoryClocks
from tradewind.node_task_manager.stores.memory.queues import MemoryQueues
from tradewind.node_task_manager.stores.memory.records import task_name
from tradewind.node_task_manager.stores.memory.replacing import replace
from tradewind.node_task_manager.stores.memory.slots import Group, Limit, MemorySlots
from tradewind.server.rates import KeyRate

UNBOUND = 10**9
PACED_AT_ONCE = 100


class MemoryLimiting(MemoryClocks):
    """Keeps running node tasks within their limits."""

    def __init__(self, limits: Limits, clock: Callable[[], int]) -> None:
        super().__init__(limits, clock)
        self._queues = MemoryQueues(clock)
        self._slots = MemorySlots()
        self._config = SystemConfig()
        self._full_at: dict[str, int] = {}
        self._paced: dict[str, int] = {}

    def configure(self, config: SystemConfig) -> None:
        self._config = config

    def _room_of_type(self, node_type: str) -> int:
        config = self._config
        room = config.max_running - len(self._leases) if config.max_running else UNBOUND
        most, rate = config.max_running_per_node_type.get(node_type), config.rates.get(node_type)
        if rate:
            room = min(room, (self._clock() * 1000 + rate.period_us - self._bucket(node_type)) // rate.interval_us)
        return min(room, most - self._slots.held(f"type:{node_type}")) if most else room

    def _bucket(self, name: str) -> int:
        """When (us) the bucket of a type or of `<user>:<key>` is full again; each node task that begins delays it."""
        return max(self._clock() * 1000, self._full_at.get(name, 0))

    def _shortfall_us(self, limit: str, rate: KeyRate) -> int:
        """By how many microseconds the bucket of a key falls short of what a node task takes; 0 or less is enough."""
        return self._bucket(_bucket_of(limit)) + rate.length_us - self._clock() * 1000 - rate.rate.period_us

    def _recheck_in(self, limit: str, us: int) -> None:
        """Look at the node tasks that wait for the rate of a key again in `us` microseconds."""
        at = self._clock() + max(1, math.ceil(us / 1000))
        self._paced[limit] = min(self._paced.get(limit, at), at)

    def _wake_paced(self) -> None:
        """Mark limits on the rate of a key as freed when the time to check them has come."""
        for limit in [limit for limit, at in self._paced.items() if at <= self._clock()]:
            del self._paced[limit]
            self._slots.freed[limit] += 1

    def _readmit_paced(self, group: Group, most: int) -> None:
        """Let in up to `most` node tasks that wait for the rate of a key, as far as it has tokens."""
        limit, rate = group.limit
        assert isinstance(rate, KeyRate)
        short = self._shortfall_us(limit, rate)
        count = 0 if short > 0 else min(most, -short // rate.length_us + 1)
        self._readmit(self._slots.remove(group, count))
        self._forget_paced()
        if self._slots.waiting(group):
            self._recheck_in(limit, count * rate.length_us if count else short)

    def _forget_paced(self) -> None:
        """Do not look again at the rates of keys that nobody waits for."""
        self._paced = {limit: at for limit, at in self._paced.items() if self._slots.groups(limit)}

    def _token_in(self, node_type: str) -> int:
        """In how many ms a type has a token, 0 when it has one or needs none."""
        rate = self._config.rates.get(node_type)
        if rate is None:
            return 0
        early = self._bucket(node_type) + rate.interval_us - rate.period_us - self._clock() * 1000
        return max(0, math.ceil(early / 1000))

    def _room_of_user(self, user: str) -> int:
        most = self._config.max_running_per_user
        return most - self._slots.held(f"user:{user}") if most else UNBOUND

    def _own_limits(self, task: NodeTask) -> list[Limit]:
        """The limits that hold back a node task by itself."""
        plan, user, node = self._plan(task), self._user(task), self._node(task)
        run = task_name(task.task_id).run
        if run.ad_hoc:
            name, bounds = f"adhoc:{user}", [self._config.max_concurrent_tasks]
        else:
            name, bounds = f"flow:{run.flow_id}", [plan.max_running, self._config.max_running_per_flow]
        found: list[Limit] = []
        if any(bounds):
            found.append(Limit(name, min(most for most in bounds if most)))
        if node.concurrency:
            found.append(Limit(f"key:{user}:{node.concurrency.key}", node.concurrency.most))
        if node.rate:
            found.append(Limit(f"pace:{user}:{node.rate.key}", node.rate))
        return found

    def _user(self, task: NodeTask) -> str:
        return self._components[self._owner(task)].user_id

    def _slots_of(self, task: NodeTask) -> list[str]:
        """The limits of which a running node task holds a slot."""
        user, node_type = self._user(task), self._node(task).node_type
        names = [limit for limit, most in self._own_limits(task) if isinstance(most, int)]
        if self._config.max_running_per_user:
            names.append(f"user:{user}")
        if self._config.max_running_per_node_type.get(node_type):
            names.append(f"type:{node_type}")
        return names

    def _take_slots(self, task: NodeTask) -> NodeTask:
        """Give a node task the slots, and the tokens, that it needs."""
        node_type, names = self._node(task).node_type, self._slots_of(task)
        for limit, most in self._own_limits(task):
            if isinstance(most, KeyRate):
                self._full_at[_bucket_of(limit)] = self._bucket(_bucket_of(limit)) + most.length_us
        rate = self._config.rates.get(node_type)
        if rate:
            self._full_at[node_type] = self._bucket(node_type) + rate.interval_us
        self._slots.take(task.task_id, names)
        return replace(task, slots=tuple(sorted(names)))

    def _return_tokens(self, task: NodeTask) -> None:
        """Give back the tokens that a node task took, as it did not begin after all."""
        node_type = self._node(task).node_type
        if rate := self._config.rates.get(node_type):
            self._full_at[node_type] = self._bucket(node_type) - rate.interval_us
        for limit, most in self._own_limits(task):
            if isinstance(most, KeyRate):
                self._full_at[_bucket_of(limit)] = self._bucket(_bucket_of(limit)) - most.length_us
                self._slots.freed[limit] += 1

    def _take_new_slots(self, task: NodeTask) -> NodeTask:
        """Give a running node task the slots of limits that were set after it began."""
        new = set(self._slots_of(task)) - set(task.slots)
        self._slots.take(task.task_id, new)
        return replace(task, slots=tuple(sorted({*task.slots, *new})))

    def _release(self, task: NodeTask) -> NodeTask:
        """Take back the lease and slots of a node task, if it has any."""
        self._leases.pop(task.task_id, None)
        self._slots.free(task.task_id, task.slots)
        return replace(task, slots=())

    def _dequeue(self, task: NodeTask) -> NodeTask:
        """Take out a ready node task, blocked or not; one about to be let in makes room for another."""
        if task.blocked:
            self._slots.unblock(task.task_id)
            self._queues.waits.pop(task.task_id, None)
        else:
            self._queues.drop(self._node(task).node_type, self._user(task), task.task_id)
            self._slots.spared.update(self._groups(task))
        return replace(task, blocked="")

    def _waits_for_limit(self, task: NodeTask) -> bool:
        """Whether a limit, rather than a lack of workers, keeps a ready node task waiting."""
        full = self._room_of_type(self._node(task).node_type) <= 0 or self._room_of_user(self._user(task)) <= 0
        return bool(task.blocked) or full

    def _reopen(self) -> None:
        """Let in node tasks held back by limits that have room again."""
        freed, self._slots.freed = self._slots.freed, Counter()
        for limit, count in freed.items():
            kind, _, rest = limit.partition(":")
            if kind == "user":
                if self._room_of_user(rest) > 0:
                    self._queues.unpark(rest)
            elif kind == "pace":
                for group in self._slots.groups(limit):
                    self._readmit_paced(group, PACED_AT_ONCE)
            elif kind != "type":
                self._readmit(self._slots.readmit(limit, count))
        spared, self._slots.spared = self._slots.spared, Counter()
        for group, count in spared.items():
            limit, most = group.limit
            if not isinstance(most, int):
                self._readmit_paced(group, count)
            elif most > self._slots.held(limit):
                self._readmit(self._slots.remove(group, count))

    def _readmit(self, readmitted: list[tuple[Group, str, float]]) -> None:
        for group, task_id, rank in readmitted:
            self._tasks[task_id] = replace(self._tasks[task_id], blocked="")
            self._queues.put_back(group.node_type, group.user, task_id, rank)

    def _full_limit(self, task: NodeTask) -> Limit | None:
        return next((limit for limit in self._own_limits(task) if self._is_full(limit)), None)

    def _is_full(self, limit: Limit) -> bool:
        name, most = limit
        return self._slots.held(name) >= most if isinstance(most, int) else self._shortfall_us(name, most) > 0

    def _group(self, task: NodeTask, limit: Limit) -> Group:
        """The group in which a node task waits for a limit of its own."""
        return Group(limit, self._node(task).node_type, self._user(task))

    def _groups(self, task: NodeTask) -> list[Group]:
        return [self._group(task, limit) for limit in self._own_limits(task)]

    def _block(self, task: NodeTask, limit: Limit, rank: float) -> list[Group]:
        """Put a node task aside; return its groups under the other limits, where it leaves room for another."""
        self._tasks[task.task_id] = replace(task, blocked=limit.name)
        self._slots.block(self._group(task, limit), task.task_id, rank)
        if isinstance(limit.most, KeyRate):
            self._recheck_in(limit.name, self._shortfall_us(limit.name, limit.most))
        return [group for group in self._groups(task) if group.limit.name != limit.name]

    def _when_full(self, task: NodeTask, limit: Limit) -> tuple[WhenFull, str]:
        """What happens to a node task that a limit holds back, and why.

        Each is judged once, before its first attempt.
        """
        concurrency, private = self._node(task).concurrency, self._private[task.task_id]
        if concurrency is None or not limit.name.startswith("key:") or task.attempt or private.judged:
            return WhenFull.WAIT, ""
        private.judged = True
        most, when_full = limit.most, concurrency.when_full
        return when_full, f'key "{concurrency.key}" is full ({most} of {most} running) and when_full is {when_full}'

    def _oldest_holder(self, limit: str) -> NodeTask | None:
        """The node task that has run longest under a limit and is not stopping."""
        running = [self._tasks[task_id] for task_id in self._slots.holders(limit)]
        running = [task for task in running if task.status is NodeTaskStatus.RUNNING and task.stop is None]
        return min(running, key=lambda task: (task.started_at, task.task_id), default=None)


def _bucket_of(limit: str) -> str:
    """The name of the bucket of a limit `pace:<user>:<key>`."""
    return limit.partition(":")[2]
