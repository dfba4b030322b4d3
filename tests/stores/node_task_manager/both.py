"""Memory and Redis side by side: both get the same calls; their effects and everything visible are compared."""

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from tests.stores.node_task_manager.fan_outs import Offered, without_nonce
from tests.stores.node_task_manager.random_plans import TYPES
from tests.stores.node_task_manager.raw_keys import run_of
from tests.stores.node_task_manager.shards import RedisShard, ShardStores
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.names import RunName, TaskName
from tradewind.node_task_manager.domain.node_task import TRANSITIONS, NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.notification import Fact, NotificationKind
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.task_event import TaskEvent
from tradewind.node_task_manager.ports.events import FIRST, Event, NewEvent, SubFlowEvent
from tradewind.node_task_manager.ports.work import Assignment, Effects
from tradewind.node_task_manager.stores.memory.shard import MemoryShard
from tradewind.server.clock import ManualClock
from tradewind.server.rates import KeyRate

WORKERS = ("w1", "w2", "w3")
USERS = ("ann", "bob")
FLOWS = ("f", "g")
WANTED = NotificationKind.ANSWER_WANTED
OF_FLOWS = (NotificationKind.DEAD_LETTER, NotificationKind.CYCLE_FAILED)
RETRIES = 3
"""Further attempts that a flow may always have within a minute: few, so that they are used up."""


@dataclass(frozen=True)
class Pair:
    """An attempt as both stores know it: nonces differ, everything else must not."""

    memory: Assignment
    redis: Assignment


@dataclass
class BothStores:
    """Both stores, and what the tests have seen of them.

    With `cut` Redis needs many scripts for what memory does at once. Then only claims hand out node tasks, of one user
    and one type at a time, because turns depend on whether a queue was empty between two scripts. There are also no
    nodes then that stop others by failing while they wait.
    """

    rng: random.Random
    clock: ManualClock
    memory: ShardStores
    redis: RedisShard
    plans: dict[str, Plan]
    cut: bool
    pairs: list[Pair] = field(default_factory=list)
    runs: dict[str, RunSubmission] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    """Batches that were deleted."""
    cycle: int = 0
    waits: dict[str, int] = field(default_factory=dict)
    """Until when node tasks must not begin again, as Redis last reported."""
    begun: list[tuple[int, str]] = field(default_factory=list)
    """When attempts of nodes with a retry policy began, and of which flow."""
    sub_flows: set[tuple[str, int, int]] = field(default_factory=set)
    """The attempts among them that wait for a cycle of another flow."""
    granted: list[tuple[int, str]] = field(default_factory=list)
    """When further attempts were granted, and of which flow, as far as the tests saw it."""
    positions: dict[str, list[str]] = field(default_factory=dict)
    """Where events of each task were seen, including events that are gone."""
    ended: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """How node tasks ended, as Redis first reported."""
    watched: dict[str, bool] = field(default_factory=dict)
    """Node tasks of flows whose events are kept, and whether that began before anything had happened to them."""
    last_of_memory: dict[int, str] = field(default_factory=dict)
    last_of_redis: dict[int, str] = field(default_factory=dict)
    """The id of the latest event of each partition."""
    offered: dict[str, Offered] = field(default_factory=dict)
    """The latest offer of each mapped node."""

    async def call_both(self, verb: str, memory_args: Sequence[Any], redis_args: Sequence[Any] | None = None) -> Any:
        """Make the same call on both; let Redis finish what it put off, then compare the effects."""
        of_memory = await getattr(self.memory, verb)(*memory_args)
        of_redis = await getattr(self.redis, verb)(*(memory_args if redis_args is None else redis_args))
        if isinstance(of_memory, Effects):
            of_redis = await self._drained(of_redis)
            self._compare(verb, of_memory, of_redis)
        else:
            self._compare(verb, of_memory.effects, await self._drained(of_redis.effects))
        return of_memory, of_redis

    async def _drained(self, effects: Effects) -> Effects:
        terminations, events, todo = list(effects.terminations), list(effects.events), effects.todo
        fan_outs = list(effects.fan_outs)
        due_in = effects.due_in
        while todo:
            more = await self.redis.claim()
            terminations += more.terminations
            events += more.events
            fan_outs += more.fan_outs
            # A claim for nobody does not report types that wait for their rate.
            todo, due_in = more.todo, min((at for at in (due_in, more.due_in) if at >= 0), default=-1)
        drained = structs.replace(effects, terminations=tuple(terminations), events=tuple(events))
        return structs.replace(drained, todo=0, due_in=due_in, fan_outs=tuple(fan_outs))

    def _compare(self, verb: str, memory: Effects, redis: Effects) -> None:
        assert [_without_nonce(a) for a in memory.assignments] == [_without_nonce(a) for a in redis.assignments], verb
        stops = [
            sorted((t.worker_id, t.task_id, t.attempt, t.stop) for t in each.terminations) for each in (memory, redis)
        ]
        assert stops[0] == stops[1], verb
        self.compare_events(verb, memory.events, redis.events)
        assert sorted(memory.stale_workers) == sorted(redis.stale_workers), verb
        assert sorted(memory.ready_types) == sorted(redis.ready_types), verb
        offers = zip(sorted(memory.fan_outs, key=without_nonce), sorted(redis.fan_outs, key=without_nonce), strict=True)
        for of_memory, of_redis in offers:
            assert without_nonce(of_memory) == without_nonce(of_redis), verb
            self.offered[of_memory.task_id] = Offered(of_memory, of_redis)
        # Redis may report one that the same script removed: this wakes somebody too early, but never too late.
        assert memory.due_in < 0 or 0 <= redis.due_in <= max(memory.due_in, self._really_due_in(memory.due_in)), verb
        for assignment in redis.assignments:
            assert self.waits.pop(assignment.task_id, 0) <= self.clock(), f"{assignment.task_id} began before its time"
            retry = self.plans[assignment.plan].nodes[assignment.index].retry
            if retry and retry.attempts > 1 and verb not in ("renew", "pass_on"):
                self.begun.append((self.clock(), _flow_of(assignment.task_id)))
        # A stop reports only what its own script did.
        if verb != "stop" or not self.cut:
            assert memory.results == redis.results, verb
        self.pairs += [Pair(m, r) for m, r in zip(memory.assignments, redis.assignments, strict=True)]

    def _really_due_in(self, due_in: int) -> int:
        """Return when (in ms) there is really something to do, if memory then looks again at the rate of a key.

        It looks once there are as many new tokens as it has let in, which is too early when others have taken those.
        """
        memory, now = self.memory, self.clock()
        assert isinstance(memory, MemoryShard)
        if now + due_in not in memory._paced.values():
            return due_in
        limits = [group.limit for name in memory._paced for group in memory._slots.groups(name)]
        short_us = [memory._shortfall_us(each.name, each.most) for each in limits if isinstance(each.most, KeyRate)]
        return min([*(at - now for at in memory._delayed.values()), *(math.ceil(us / 1000) for us in short_us)])

    def compare_events(self, verb: str, memory: Sequence[NewEvent], redis: Sequence[NewEvent]) -> None:
        """Check that both stores report the same events, and which event each of them follows."""
        assert _sorted_events(memory) == _sorted_events(redis), verb
        for last, events in ((self.last_of_memory, memory), (self.last_of_redis, redis)):
            for after, event in map(structs.astuple, events):
                assert after == last.get(event.partition, FIRST), verb
                last[event.partition] = event.event_id

    async def compare(self) -> None:
        """Check that everything visible is the same in both stores."""
        names = [(run.run, component_id) for run in self.runs.values() for component_id, _ in run.components]
        ids = await self._ids()
        shards = (self.memory, self.redis)
        found = [await shard.tasks(ids, inputs=True, outputs=True) for shard in shards]
        seen = []
        for shard, tasks in zip(shards, found, strict=True):
            events = await shard.read({0: "0", 1: "0"}, 10_000)
            seen.append(
                {
                    "tasks": [_record(task, self.cut) for task in tasks],
                    "components": await shard.components(names),
                    "held": [sorted(await shard.held_by(worker)) for worker in WORKERS],
                    "events": sorted((structs.replace(event, event_id="") for event in events), key=_order_of),
                }
            )
        for name, of_memory in seen[0].items():
            assert of_memory == seen[1][name], name
        for component in seen[0]["components"]:
            running = sum(task["status"] == "running" for task in seen[0]["tasks"] if _belongs_to(task, component))
            assert component is None or component.running == (running if component.run.ad_hoc else 0), component
        for task in found[1]:
            if task is not None and task.status.terminal:
                end = (task.status, task.ended_at, task.attempt, task.failures)
                assert self.ended.setdefault(task.task_id, end) == end, f"{task.task_id} ended twice"
            elif task is not None and task.status is NodeTaskStatus.PENDING and task.retry_at and task.failures:
                if self.waits.get(task.task_id) != task.retry_at != task.postponed:
                    self._grant(_flow_of(task.task_id))
                self.waits[task.task_id] = task.retry_at
            elif task is not None and task.wait is not None and task.wait.flow_id:
                began, retry = (task.task_id, task.started_at, task.attempt), self._node(task).retry
                if retry and retry.attempts > 1 and began not in self.sub_flows:
                    self.sub_flows.add(began)
                    self.begun.append((self.clock(), _flow_of(task.task_id)))

    def _node(self, task: NodeTask) -> PlanNode:
        run = self.runs[run_of(task.task_id)]
        return self.plans[dict(run.components)[task.component_id]].nodes[task.index]

    def _is_mapped(self, task: NodeTask) -> bool:
        return TaskName.parse(task.task_id).item < 0 and self._node(task).fan_out is not None

    def _waits_to_begin(self, task: NodeTask) -> bool:
        """Say whether this node task of a built-in type is there, but its wait has yet to begin."""
        return self._node(task).wait is not None and task.status is NodeTaskStatus.PENDING and not task.started_at

    async def _ids(self) -> list[str]:
        """Return all node tasks, including those of items that have not begun."""
        ids = sorted(
            {
                run.run.task_id(node.node_id)
                for run in self.runs.values()
                for _, digest in run.components
                if digest in self.plans
                for node in self.plans[digest].nodes
            }
        )
        sizes = {task.task_id: task.items.total for task in await self.memory.tasks(ids) if task and task.items}
        return ids + [f"{task_id}:{place}" for task_id, total in sizes.items() for place in range(total)]

    def _grant(self, flow: str) -> None:
        """Note a further attempt: within a minute a flow has no more of them than its budget allows."""
        now = self.clock()
        self.granted.append((now, flow))
        granted = sum(at > now - 60_000 and of == flow for at, of in self.granted)
        begun = sum(at > now - 65_000 and of == flow for at, of in self.begun)
        assert not flow or granted <= max(RETRIES, begun * 20 // 100), (
            f"{granted} further attempts of {flow} in a minute"
        )

    async def _dead_letters(self, shard: ShardStores, user: str) -> list[tuple[int, str]]:
        """Read the dead letters in pages of two."""
        found: list[tuple[int, str]] = []
        while page := await shard.dead_letters(user, found[-1] if found else None, 2):
            found += page
        return found

    async def compare_notices(self) -> None:
        """Check that events of tasks and notifications are the same, from the start and from any position."""
        self.watched = {each: fresh for each, fresh in self.watched.items() if run_of(each) in self.runs}
        tasks = [name for name in self.runs if name.startswith("task:")]
        for run in (*tasks, *self.watched):
            whole = await self.memory.task_events(run, "0-0", 1000)
            assert await self.redis.task_events(run, "0-0", 1000) == whole, run
            (record,) = await self.redis.tasks([run])
            if not whole.entries:
                # Nothing has happened since the watch began.
                assert not self.watched[run] or record is None or record.status is NodeTaskStatus.REGISTERED, run
                continue
            assert record is not None
            _check_events(record, whole.entries, untold=self._is_mapped(record) or self._waits_to_begin(record))
            newest = whole.entries[-1]
            assert await self.redis.newest_task_event(run) == newest == await self.memory.newest_task_event(run)
            self.positions.setdefault(run, []).extend(event.event_id for event in whole.entries)
        with_events = sorted(self.positions.keys() & {*tasks, *self.watched})
        for run in self.rng.sample(with_events, min(3, len(with_events))):
            after, limit = self.rng.choice(self.positions[run]), self.rng.choice((1, 2, 100))
            assert await self.memory.task_events(run, after, limit) == await self.redis.task_events(run, after, limit)
        for user in USERS:
            listed = []
            for shard in (self.memory, self.redis):
                notifications, unread = await shard.list_notifications(user, "", 1000)
                facts = [each.fact for each in reversed(notifications)]
                # Within one script stores may differ in their order, and so in which fact of a flow they report.
                named = [
                    Fact(fact.kind, fact.subject.partition(":")[0], fact.at) if fact.kind in OF_FLOWS else fact
                    for fact in facts
                ]
                listed.append((sorted(named, key=lambda fact: (fact.at, fact.kind, fact.subject)), unread))
                found = (await shard.notifications(user, "0-0", 1000)).entries
                assert [each.fact for each in found] == facts
            assert listed[0] == listed[1]
            ends = [fact.subject for fact in listed[0][0] if fact.kind not in (*OF_FLOWS, WANTED)]
            ends = [subject for subject in ends if subject not in self.deleted]
            mine = [name for name, run in self.runs.items() if run.user_id == user and run.run.ad_hoc]
            states = await self.redis.components([(self.runs[name].run, "0") for name in mine])
            ended = [name for name, state in zip(mine, states, strict=True) if state and state.finished_at]
            assert sorted(ends) == sorted(ended), "a user is notified once of each end"

    async def compare_rarely_changed(self) -> None:
        """Check that data that few operations change is the same."""
        seen = []
        for shard in (self.memory, self.redis):
            ids = [await shard.component_ids(run.run) for run in self.runs.values()]
            cycles = range(max(0, self.cycle - 8), self.cycle + 1)
            letters = [await self._dead_letters(shard, user) for user in USERS]
            lines = [await shard.lines(RunName(flow, cycle, 0), "", 1000) for flow in FLOWS for cycle in cycles]
            lines += [await shard.lines(run.run, "", 1000) for run in self.runs.values() if run.run.ad_hoc]
            listed = [await self._listed(shard, user, kind) for user in USERS for kind in ("task", "batch")]
            seen.append((ids, letters, [replace(line, log_id="") for each in lines for line in each], listed))
        assert seen[0] == seen[1]
        limits = [f"{kind}:{user}" for user in USERS for kind in ("user", "adhoc")]
        limits += [f"flow:{flow}" for flow in FLOWS] + [f"type:{node_type}" for node_type in TYPES]
        assert await self.memory.held(limits) == await self.redis.held(limits)
        assert await self.memory.queues() == await self.redis.queues()
        assert await self.memory.running(10_000) == await self.redis.running(10_000)
        assert await self.memory.totals() == await self.redis.totals()
        await self.compare_notices()

    async def _listed(self, shard: ShardStores, user: str, kind: str) -> list[tuple[int, str]]:
        """List in pages of 1 to 3."""
        listed: list[tuple[int, str]] = []
        size = self.cycle % 3 + 1
        while page := await shard.runs_of(user, kind, listed[-1] if listed else None, size):
            listed += page
        return listed + await shard.runs_of(user, kind, None, 10_000, only_open=True)


def _sorted_events(events: Sequence[NewEvent]) -> list[Event]:
    return sorted((structs.replace(new.event, event_id="") for new in events), key=_order_of)


def _order_of(event: Event) -> tuple[str, ...]:
    """Return a sort key for events: those of one node task, or of one component, stay in their own order."""
    if isinstance(event, SubFlowEvent):
        return (event.run, "", event.task_id)
    return (event.run, event.component)


def position(event_id: str) -> tuple[int, ...]:
    return tuple(map(int, event_id.split("-")))


def _check_events(task: NodeTask, events: Sequence[TaskEvent], *, untold: bool) -> None:
    """Check that each event follows from the previous one, only the last is final, and it leaves the task as on record.

    Events of a task with `untold` do not say until when it waits: for its items, or for its planned time.
    """
    statuses = [event.status for event in events]
    for before, after in itertools.pairwise(statuses):
        assert after is before or after in TRANSITIONS[before], statuses
    assert not any(status.terminal for status in statuses[:-1]), statuses
    assert (statuses[-1], events[-1].attempt) == (task.status, task.attempt)
    assert [position(event.event_id) for event in events] == sorted(position(event.event_id) for event in events)
    left = events[-1].applied_to(task)
    if untold:
        left = replace(left, retry_at=task.retry_at)
    if left.error and task.error and not task.status.terminal:
        left = replace(left, error=replace(left.error, traceback=task.error.traceback))
    assert left == replace(task, lease_deadline=left.lease_deadline), "the newest event leaves what is on record"


def _flow_of(task_id: str) -> str:
    """Return the flow of a node task, "" for an ad-hoc task or one of a batch."""
    return TaskName.parse(task_id).run.flow_id


def _belongs_to(task: Any, component: Any) -> bool:
    return bool(task and component and str(TaskName.parse(task["task_id"]).run) == str(component.run))


def _without_nonce(assignment: Assignment) -> tuple[Any, ...]:
    return tuple(getattr(assignment, name) for name in Assignment.__struct_fields__ if name != "nonce")


def _record(task: Any, cut: bool) -> Any:
    """Return a node task without what may differ: nonces, and signal counts, which a single edge does not need.

    If waits that end together are cut into pieces, the consequences of the first come before the end of the last. So it
    differs which of several nodes skipped one that follows them all.
    """
    if task is None:
        return None
    hidden = {"nonce", "waiting", "live"}
    if cut and task.reason.startswith('node "'):
        hidden.add("reason")
    seen = {name: value for name, value in vars(task).items() if name not in hidden}
    return seen | {"updated_at": task.updated_at, "held": bool(task.nonce)}
