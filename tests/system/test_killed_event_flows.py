"""A scheduler is killed at each write and each answer it gets, while events begin flows, and their ends others."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from tests.system.crashing import World
from tests.system.test_killed_schedulers import Ledger, crash_at_each_step
from tradewind.client import CycleStatus
from tradewind.flow import Flow

ON_ORDER = {"event": {"name": "order"}}
AFTER_FIRST = {"flow_finished": {"flow_ids": ["first"]}}


def test_event_begins_one_cycle_and_its_end_begins_one_more() -> None:
    def begin() -> tuple[Ledger, Callable[[World], Awaitable[None]]]:
        ledger = Ledger()

        async def scenario(world: World) -> None:
            client = world.client
            for flow_id, schedule in (("first", ON_ORDER), ("then", AFTER_FIRST)):
                flow = Flow(flow_id, schedule=schedule)
                flow.node("a", "work")
                await client.register_flow(flow_id, flow)
                await client.start_flow(flow_id)
            world.scheduler.counting = True
            published = await client.publish_event("order", event_id="order 1")
            # An event that was interrupted by the death is published again.
            assert published.fired + published.duplicates == 1
            # The dead scheduler's lease lapses after 30 s.
            await asyncio.sleep(45)
            for flow_id in ("first", "then"):
                (cycle,) = [cycle async for cycle in client.list_cycles(flow_id)]
                (firing,) = [firing async for firing in client.list_firings(flow_id)]
                assert (cycle.status, cycle.inputs["event"]["id"]) == (CycleStatus.COMPLETED, firing.event_id)
                assert (firing.outcome, firing.cycle) == ("fired", 0)
            assert ledger.ran == Counter(["first:0:a", "then:0:a"])

        return ledger, scenario

    crash_at_each_step(begin, 10)
