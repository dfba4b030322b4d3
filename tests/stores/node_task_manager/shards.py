"""A shard's stores in memory and in Redis, and what tests submit to them."""

from dataclasses import dataclass
from typing import Protocol

from tests.servers import RedisServer
from tradewind.node_task_manager.domain.component import Component, RunSubmission
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTask
from tradewind.node_task_manager.domain.plan import FailurePolicy, Plan, PlanEdge, PlanNode, RunIf
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.events import EventLog, Notices
from tradewind.node_task_manager.ports.node_tasks import NodeTaskStore
from tradewind.node_task_manager.ports.plans import PlanStore
from tradewind.node_task_manager.ports.reading import NodeTaskReader, QueueReader
from tradewind.node_task_manager.ports.work import Assignment, Held, Outcome, OutcomeKind, Vacancy
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.node_task_manager.stores.memory import MemoryShard
from tradewind.node_task_manager.stores.redis import RedisNodeTaskStore
from tradewind.node_task_manager.stores.redis_config import RedisConfigStore
from tradewind.node_task_manager.stores.redis_doctor import RedisShardDoctor
from tradewind.node_task_manager.stores.redis_events import RedisEventLog
from tradewind.node_task_manager.stores.redis_notices import RedisNotices
from tradewind.node_task_manager.stores.redis_plans import RedisPlanStore
from tradewind.node_task_manager.stores.redis_queues import RedisQueueReader
from tradewind.node_task_manager.stores.redis_reader import RedisNodeTaskReader
from tradewind.server.clock import ManualClock
from tradewind.server.redis.client import Client

LIMITS = Limits()
RUN = RunName("flow", 0, 0)


class ShardStores(NodeTaskStore, NodeTaskReader, QueueReader, PlanStore, EventLog, Notices, Protocol):
    """All ports of a shard in one object, for tests."""


class RedisShard(
    RedisNodeTaskStore, RedisNodeTaskReader, RedisQueueReader, RedisPlanStore, RedisEventLog, RedisNotices
):
    """The Redis stores of a shard in one object."""

    def __init__(self, client: Client, clock: ManualClock, limits: Limits = LIMITS) -> None:
        keys = Keys("trading_flow", 0)
        RedisNodeTaskStore.__init__(self, client, keys, limits, clock)
        RedisNodeTaskReader.__init__(self, client, keys)
        RedisQueueReader.__init__(self, client, keys)
        RedisPlanStore.__init__(self, client, keys, limits)
        RedisNotices.__init__(self, client, keys, limits, clock, self)
        self.doctor = RedisShardDoctor(self)
        self._configs = RedisConfigStore(client, {0: keys})

    async def save_config(self, config: SystemConfig) -> None:
        assert await self._configs.save(config, config.version - 1)


def memory_shard(clock: ManualClock, limits: Limits = LIMITS) -> ShardStores:
    """A shard in memory."""
    return MemoryShard(limits, clock)


def redis_shard(server: RedisServer, clock: ManualClock, limits: Limits = LIMITS) -> RedisShard:
    """A shard in Redis, logged in as the service."""
    return RedisShard(server.connect("node_task_manager"), clock, limits)


def plan_of(
    text: str, *, policy: FailurePolicy = FailurePolicy.SKIP_DOWNSTREAM, digest: str = "", **options: object
) -> Plan:
    """Build a plan from `a.out>b.in a.out>c.in d`: edges, or single nodes. Options go to every node."""
    names: list[str] = []
    pairs = []
    for word in text.split():
        ends = [end.partition(".") for end in word.split(">")]
        names += [name for name, _, _ in ends if name not in names]
        if len(ends) == 2:
            pairs.append((ends[0], ends[1]))
    run_ifs = dict.fromkeys(names, RunIf.ALL_SUCCEEDED)
    run_ifs.update(options.pop("run_if", {}))  # type: ignore[call-overload]
    nodes = tuple(PlanNode(name, "noop", run_if=run_ifs[name], **options) for name in names)  # type: ignore[arg-type]
    edges = tuple(PlanEdge(names.index(a[0]), a[2] or "out", names.index(b[0]), b[2] or "in") for a, b in pairs)
    return Plan(digest or f"{text}/{policy}", nodes, edges, policy)


@dataclass
class Bench:
    """Drives a shard as a worker and a scheduler would."""

    shard: ShardStores
    clock: ManualClock

    async def submit(
        self,
        plan: Plan,
        *,
        flow_id: str = "flow",
        cycle: int = 0,
        run_id: str = "r0",
        user_id: str = "default",
        planned_ms: int = 0,
    ) -> str:
        """Save the plan, submit a run of it and return the outcome."""
        await self.shard.save(plan)
        run = RunSubmission(
            RunName(flow_id, cycle, 0),
            run_id,
            user_id,
            (("0", plan.digest),),
            partition=3,
            planned_ms=planned_ms,
            begun_ms=self.clock(),
        )
        return (await self.shard.submit([run])).results[0].outcome

    async def take(self, credits: int = 100, worker_id: str = "w1", *types: str) -> list[Assignment]:
        """Claim as a worker without a stream."""
        effects = await self.shard.claim([Vacancy(worker_id, 0, credits, types or ("noop",))])
        return list(effects.assignments)

    async def complete(self, assignment: Assignment, **outputs: str) -> str:
        """Complete an attempt and return why it was refused, "" if it was not."""
        outcome = Outcome(
            assignment.task_id,
            assignment.attempt,
            assignment.nonce,
            OutcomeKind.COMPLETED,
            tuple(outputs.items()),
        )
        return (await self.shard.complete([outcome])).results[0]

    async def statuses(self, plan: Plan, flow_id: str = "flow", cycle: int = 0) -> dict[str, str]:
        """Return the status of each node of a run, "-" for nodes without a record."""
        ids = [f"{flow_id}:{cycle}:0:{node.node_id}" for node in plan.nodes]
        tasks = await self.shard.tasks(ids)
        return {node.node_id: task.status.value if task else "-" for node, task in zip(plan.nodes, tasks, strict=True)}


def held(*assignments: Assignment) -> list[Held]:
    return [Held(a.task_id, a.attempt, a.nonce) for a in assignments]


def completed(given: Assignment) -> Outcome:
    return Outcome(given.task_id, given.attempt, given.nonce, OutcomeKind.COMPLETED, (("out", "1"),))


async def task_of(bench: Bench, node: str = "a") -> NodeTask:
    (found,) = await bench.shard.tasks([f"flow:0:0:{node}"], outputs=True)
    assert found is not None
    return found


async def only_component(bench: Bench) -> Component:
    (component,) = await bench.shard.components([(RUN, "0")])
    assert component is not None
    return component
