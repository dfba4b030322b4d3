"""What a tick costs as more schedules are registered: 100 flows against 100 000, by the store's own counts.

    python -m benchmarks.schedules [--few 100] [--many 100000] [--ticks 300]

In a tick one flow is due: its trigger is claimed, its cycle begins, the trigger is answered. All other flows are due in
a year. Records are loaded directly, each size in a store of its own; the two sizes take turns. Prints the commands of a
tick, including those inside scripts, and the median time of each of its scripts. Exits with 1 when a tick among many
schedules issues another number of commands than among few, or when a script takes more than 1.5 times as long.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.store import Store, send
from tradewind.scheduler.domain.beginning import BeginOutcome, BeginRequest, CycleShape
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_record import FlowRegistration, StatusChange
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.stores.keys import Keys as FlowKeys
from tradewind.scheduler.stores.redis import RedisStores
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import partition_of
from tradewind.server.redis.client import Client, connect
from tradewind.server.redis.subscriber import Subscriber
from tradewind.server.schedules.grids import IntervalGrid
from tradewind.trigger.domain.claim import Ack, Subscription, Token
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import TriggerDraft
from tradewind.trigger.ports.claims import ClaimOrder
from tradewind.trigger.stores.keys import Keys as TriggerKeys
from tradewind.trigger.stores.redis import RedisTriggerStore

MAX_RATIO = 1.5
MINUTE = 60_000
_YEAR = 366 * 86_400_000
_START = 1_700_000_000_000
_STEPS = ("claim", "begin", "answer")
_SUBJECT = "ticks"
_PARTITION = partition_of(_SUBJECT)
_KEPT = 50


@dataclass
class Tick:
    """One tick: commands by name, and the microseconds of each step's script."""

    commands: Counter[str] = field(default_factory=Counter)
    usec: dict[str, float] = field(default_factory=dict)


class Side:
    """The parts of a trigger service and a scheduler that a tick needs, over one store with a clock of their own."""

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._clock = ManualClock(_START)
        self._flows = RedisStores(client, FlowKeys(), self._clock, Subscriber(url), replica="here")
        self._triggers = RedisTriggerStore(client, TriggerKeys(), self._clock)
        self._subscription = Subscription(_PARTITION, 1, "here")
        self._ticks = 0

    async def load(self, count: int) -> None:
        """Register one flow that is due every minute, and `count` - 1 copies of another that is due in a year."""
        await self._start(_SUBJECT, _START + MINUTE)
        await self._start("template", _START + _YEAR)
        await self._triggers.subscribe([self._subscription])
        flow = await self._client.hgetall(FlowKeys().flow("template"))
        trigger = await self._client.hgetall(TriggerKeys().trigger(partition_of("template"), "template"))
        await send(self._client, _copies(flow, trigger, count - 2))
        # Compile the scripts before anything counts.
        for _ in range(5):
            await self.tick()

    async def tick(self) -> Tick:
        """Let a minute pass, and handle what is due."""
        self._clock.advance(MINUTE)
        self._ticks += 1
        tick = Tick()
        due_ms = self._clock.now_ms()
        order = ClaimOrder(self._subscription, 100, 30_000, f"n{self._ticks}")
        (claims,) = await self._measured(tick, "claim", self._triggers.claim_due([order]))
        (due,) = claims.due
        assert due.trigger.planned_ms == due_ms, due
        shape = CycleShape(
            _SUBJECT, "default", 1, ("a",), 1, FailurePolicy.SKIP_DOWNSTREAM, 0, 100, ScheduleDefinition(MINUTE)
        )
        request = BeginRequest(
            shape,
            f"run{self._ticks}",
            CycleOrigin.SCHEDULE,
            5000,
            planned_ms=due_ms,
            due_ms=due_ms,
            next_ms=due_ms + MINUTE,
            schedule_epoch=due.trigger.epoch,
        )
        (answer,) = await self._measured(tick, "begin", self._flows.cycles.begin([request]))
        assert answer.outcome is BeginOutcome.BEGUN, answer
        token = Token.parse(due.token)
        assert token is not None
        ack = Ack(token, due_ms + MINUTE)
        await self._measured(tick, "answer", self._triggers.ack([ack], "here"))
        return tick

    async def _measured(self, tick: Tick, step: str, call: Any) -> Any:
        await self._client.execute_command("CONFIG", "RESETSTAT")
        answer = await call
        stats = await self._client.info("commandstats")
        for name, told in stats.items():
            command = name.removeprefix("cmdstat_")
            if not command.startswith(("config", "info", "client")):
                tick.commands[f"{step}: {command}"] += told["calls"]
        tick.usec[step] = float(stats["cmdstat_fcall"]["usec_per_call"])
        return answer

    async def _start(self, flow_id: str, first_ms: int) -> None:
        """Register and start a flow the way the services do."""
        schedule = ScheduleDefinition(MINUTE)
        made = FlowRegistration(
            flow_id, "default", '{"interval":60}', "{}", (), "d1", schedule, OverlapPolicy.ALLOW, _KEPT
        )
        await self._flows.flows.register(made)
        change = StatusChange(flow_id, FlowStatus.RUNNING, (FlowStatus.REGISTERED,), first_ms)
        await self._flows.flows.change_status(change)
        (flow,) = await self._flows.flows.find([flow_id])
        assert flow is not None
        await self._flows.outbox.settle(flow_id, flow.schedule_epoch)
        every_minute = Schedule(IntervalGrid(MINUTE, first_ms))
        draft = TriggerDraft(flow_id, flow_id, every_minute, epoch=flow.schedule_epoch)
        await self._triggers.save(partition_of(flow_id), draft)


def _copies(flow: dict[Any, Any], trigger: dict[Any, Any], count: int) -> Iterator[tuple[Any, ...]]:
    """Yield the commands that make copies of a flow and its trigger, under names of their own."""
    flow_keys, trigger_keys = FlowKeys(), TriggerKeys()
    for number in range(count):
        name = f"flow-{number}"
        partition = partition_of(name)
        yield ("HSET", flow_keys.flow(name), *_flat(flow | {b"id": name}))
        yield ("ZADD", flow_keys.flows(partition), 0, name)
        yield ("HSET", trigger_keys.trigger(partition, name), *_flat(trigger | {b"partition_key": name}))
        yield ("ZADD", trigger_keys.due(partition), _START + _YEAR, name)


def _flat(fields: dict[Any, Any]) -> list[Any]:
    return [part for item in fields.items() for part in item]


async def compare(counts: tuple[int, int], ticks: int) -> dict[int, list[Tick]]:
    """Return ticks by the number of registered schedules, each size in a store of its own."""
    done: dict[int, list[Tick]] = {count: [] for count in counts}
    with Store() as first, Store() as second:
        sides = []
        for count, store in zip(counts, (first, second), strict=True):
            sides.append((count, connect(store.url), store.url))
        try:
            loaded = []
            for count, client, url in sides:
                loaded.append((count, Side(client, url)))
                await loaded[-1][1].load(count)
            for _ in range(ticks):
                for count, side in loaded:
                    done[count].append(await side.tick())
        finally:
            for _, client, _ in sides:
                await client.end()
    return done


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedules", description=__doc__)
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--ticks", type=int, default=300)
    options = parser.parse_args()
    done = asyncio.run(compare((options.few, options.many), options.ticks))
    few, many = done[options.few], done[options.many]
    good = True
    for step in _STEPS:
        costs = [statistics.median(tick.usec[step] for tick in ticks) for ticks in (few, many)]
        ratio = costs[1] / costs[0]
        good = good and ratio <= MAX_RATIO
        words = f"{costs[0]:7.1f} us with {options.few:,}, {costs[1]:7.1f} us with {options.many:,}: {ratio:.2f}"
        print(f"{step:<8} {words}")
    told = [statistics.median(sum(tick.commands.values()) for tick in ticks) for ticks in (few, many)]
    same = [tick.commands for tick in few] == [tick.commands for tick in many]
    verdict = "the same" if same else "NOT THE SAME"
    print(f"commands {told[0]:7.0f}    with {options.few:,}, {told[1]:7.0f}    with {options.many:,}: {verdict}")
    if not (good and same):
        sys.exit(1)


if __name__ == "__main__":
    main()
