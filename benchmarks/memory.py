"""How much memory finished work takes in the store: bytes per flow, cycle and node task, measured with the real stores.

    python -m benchmarks.memory [--cycles 4000]

Runs cycles of one node and of ten nodes over an embedded store, ends them, and works out the shares of a cycle and of a
node task. Each node emits one small JSON value, which a signal passes on. No service runs and nothing is timed.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass

import redis
from msgspec import structs

from benchmarks.store import Store
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import Plan, PlanEdge, PlanNode
from tradewind.node_task_manager.ports.work import Assignment, Outcome, OutcomeKind, Vacancy
from tradewind.node_task_manager.stores.keys import Keys as NodeTaskKeys
from tradewind.node_task_manager.stores.redis import RedisNodeTaskStore
from tradewind.node_task_manager.stores.redis_events import RedisEventLog
from tradewind.node_task_manager.stores.redis_plans import RedisPlanStore
from tradewind.scheduler.domain.beginning import BeginRequest, CycleShape
from tradewind.scheduler.domain.chain_state import STATUS, ChainState, ComponentEnd, CycleOrigin, component_field
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_record import FlowRegistration, RegisterOutcome
from tradewind.scheduler.domain.log_line import LogLevel, LogText
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.stores.keys import Keys as SchedulerKeys
from tradewind.scheduler.stores.redis import RedisStores
from tradewind.server.clock import ScriptTime
from tradewind.server.identifiers import new_run_id
from tradewind.server.partitions import PARTITIONS, partition_of
from tradewind.server.redis.client import Client, connect
from tradewind.server.redis.subscriber import Subscriber

_BATCH = 100
_KEEP = 100
_VALUE = '{"n":1}'
_SHORT, _LONG = 1, 10


@dataclass(frozen=True, slots=True)
class Taken:
    """Bytes of the store's memory, per item."""

    flow: float
    cycle_in_scheduler: float
    cycle_in_node_task_manager: float
    node_id: float
    node_task: float

    def lines(self) -> list[str]:
        """Return the lines to print."""
        rows = [
            ("a registered flow of ten nodes", self.flow),
            ("a finished cycle, in the scheduler", self.cycle_in_scheduler),
            ("and for each of its nodes", self.node_id),
            ("a finished cycle, in the node task manager", self.cycle_in_node_task_manager),
            ("and for each of its node tasks", self.node_task),
        ]
        return [f"{what:<44}{size:>8.0f} bytes" for what, size in rows]


def chain(length: int) -> Plan:
    """Return a plan of nodes in sequence."""
    nodes = tuple(PlanNode(f"n{place}", "noop", "{}") for place in range(length))
    edges = tuple(PlanEdge(place, "out", place + 1, "in") for place in range(length - 1))
    return Plan(f"chain-{length}", nodes, edges)


class Bench:
    """The stores of the scheduler and the node task manager over one embedded store."""

    def __init__(self, store: Store, client: Client) -> None:
        self._admin = redis.Redis(port=store.port)
        self._scheduler = RedisStores(
            client, SchedulerKeys(), ScriptTime(), Subscriber(store.url), replica="memory", lease_ms=10_000
        )
        # Look at ended runs for cleaning at once: the memory they use before cleaning is used for a minute only.
        keys, limits = NodeTaskKeys("trading_flow", 0), Limits(settle_ms=0)
        self._node_tasks = RedisNodeTaskStore(client, keys, limits, ScriptTime())
        self._plans = RedisPlanStore(client, keys, limits)
        self._events = RedisEventLog(client, keys)

    def used(self) -> int:
        """Return the bytes that the store has in use."""
        info = self._admin.info("memory")
        assert isinstance(info, dict)
        return int(info["used_memory"])

    async def register(self, flow_id: str, length: int) -> None:
        """Register a flow."""
        nodes = ",".join(f'{{"config":{{}},"id":"n{place}","type":"noop"}}' for place in range(length))
        structure = ",".join(f'"n{place}"' for place in range(length))
        outcome, _ = await self._scheduler.flows.register(
            FlowRegistration(
                flow_id=flow_id,
                user_id="",
                config_json=f'{{"edges":[],"interval":60,"nodes":[{nodes}]}}',
                structure_json=f'{{"component_count":1,"components":{{"0":{{"nodes":[{structure}]}}}}}}',
                labels=(),
                digest=f"{length}",
                schedule=ScheduleDefinition(60_000),
                overlap=OverlapPolicy.ALLOW,
                keep_cycles=_KEEP,
            )
        )
        assert outcome is RegisterOutcome.CREATED, outcome

    async def begin(self, flow_id: str, length: int, count: int) -> list[ChainState]:
        """Begin `count` cycles of a flow."""
        nodes = tuple(f"n{place}" for place in range(length))
        shape = CycleShape(
            flow_id, "default", 1, nodes, 1, FailurePolicy.SKIP_DOWNSTREAM, 0, _KEEP, ScheduleDefinition(60_000)
        )
        wishes = [BeginRequest(shape, new_run_id(), CycleOrigin.RUN_FLOW, 5_000) for _ in range(count)]
        answers = await self._scheduler.cycles.begin(wishes)
        return [answer.state for answer in answers if answer.state is not None]

    async def end(self, states: list[ChainState], length: int) -> None:
        """End cycles of one flow as completed."""
        updates = [
            RunUpdate(
                structs.replace(
                    state, components={"0": ComponentEnd(length, sinks_completed=1)}, status=CycleStatus.COMPLETED
                ),
                (component_field("0"), STATUS),
                log=LogText(LogLevel.INFO, f"Cycle {state.name.cycle} completed"),
            )
            for state in states
        ]
        results = await self._scheduler.states.update_many(updates)
        assert all(result.ok for result in results)

    async def run_nodes(self, states: list[ChainState], plan: Plan) -> None:
        """Run all nodes of cycles, and acknowledge their events."""
        await self._plans.save(plan)
        worker = Vacancy("w1", 0, len(states), ("noop",))
        runs = [
            RunSubmission(
                RunName(*state.name),
                state.facts.run_id,
                "default",
                (("0", plan.digest),),
                partition_of(state.name.flow_id),
                begun_ms=state.facts.start_ms,
            )
            for state in states
        ]
        assignments = list((await self._node_tasks.submit(runs, [worker])).effects.assignments)
        while assignments:
            effects = await self._node_tasks.complete([_done(each) for each in assignments], [worker])
            assignments = list(effects.assignments)
            while effects.todo:
                effects = await self._node_tasks.claim([worker])
                assignments += effects.assignments
        await self._events.acknowledge(dict.fromkeys(range(PARTITIONS), "99999999999999-0"))
        while (await self._node_tasks.clean("bench", None)).more:
            pass


def _done(assignment: Assignment) -> Outcome:
    outputs = (("out", _VALUE),)
    return Outcome(assignment.task_id, assignment.attempt, assignment.nonce, OutcomeKind.COMPLETED, outputs)


async def measure_length(length: int, cycles: int) -> tuple[float, float, float]:
    """Return the bytes of a flow, of a cycle in the scheduler and of a cycle in the node task manager, in a new store.

    Flows have `length` nodes in sequence. There are `cycles` cycles, 100 per flow.
    """
    with Store() as store:
        client = connect(store.url)
        bench, plan = Bench(store, client), chain(length)
        marks: list[int] = []
        # The small first round pays for everything that is made only once: scripts, connections, plans, indexes.
        for name, count in (("warm", _BATCH), ("flow", cycles)):
            flows = [f"{name}{number}" for number in range(count // _BATCH)]
            marks = [bench.used()]
            for flow_id in flows:
                await bench.register(flow_id, length)
            marks.append(bench.used())
            begun = [await bench.begin(flow_id, length, _BATCH) for flow_id in flows]
            for states in begun:
                await bench.end(states, length)
            marks.append(bench.used())
            for states in begun:
                await bench.run_nodes(states, plan)
            marks.append(bench.used())
        await client.end()
    empty, registered, ended, run = marks
    return (registered - empty) / (cycles / _BATCH), (ended - registered) / cycles, (run - ended) / cycles


async def measure(cycles: int) -> Taken:
    """Measure short and long flows and attribute the difference to the extra nodes."""
    _, short_scheduler, short_run = await measure_length(_SHORT, cycles)
    flow, long_scheduler, long_run = await measure_length(_LONG, cycles)
    node_id = (long_scheduler - short_scheduler) / (_LONG - _SHORT)
    node_task = (long_run - short_run) / (_LONG - _SHORT)
    return Taken(flow, short_scheduler - node_id * _SHORT, short_run - node_task * _SHORT, node_id, node_task)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=4_000, help="cycles of each length, in hundreds (default 4000)")
    cycles = max(_BATCH, parser.parse_args().cycles // _BATCH * _BATCH)
    print(f"{cycles} cycles of {_SHORT} node and {cycles} of {_LONG} nodes, {_BATCH} cycles a flow, values of 7 bytes")
    print("\n".join(asyncio.run(measure(cycles)).lines()))


if __name__ == "__main__":
    main()
