"""Chapter 6: cycles begin on time, and remember; a day of them takes a moment under the clock of a simulation."""

from datetime import timedelta

from tradewind.client import CycleStatus, FlowStatus
from tradewind.flow import Flow
from tradewind.testing import VirtualStack, running_stack, simulate
from tradewind.worker import Context, node


@node("open")
async def opening(ctx: Context) -> int:
    """The flow's memory goes on from cycle to cycle."""
    return int(await ctx.flow_memory.update("opened", lambda opened: opened + 1, 0, once=True))


def mornings() -> Flow:
    flow = Flow("mornings", schedule={"cron": "30 9 * * *", "zone": "America/New_York"})
    flow.node("open", opening)
    return flow


def test_cycle_begins_on_each_morning_of_a_week() -> None:
    async def week(stack: VirtualStack) -> None:
        await stack.client.register_flow("mornings", mornings())
        await stack.client.start_flow("mornings")
        await stack.run_for(days=7)

        cycles = [cycle async for cycle in stack.client.list_cycles("mornings")]
        assert len(cycles) == 7
        assert {cycle.status for cycle in cycles} == {CycleStatus.COMPLETED}
        latest, before = cycles[0].planned_time, cycles[1].planned_time
        assert latest is not None
        assert before is not None
        assert latest - before == timedelta(days=1)
        assert (await stack.client.get_memory("mornings")).variables == {"opened": 7}

    simulate(week, [opening])


async def test_a_flow_is_started_paused_and_stopped() -> None:
    async with running_stack([opening]) as client:
        await client.register_flow("mornings", mornings())
        assert (await client.start_flow("mornings")).status is FlowStatus.RUNNING

        paused = await client.pause_flow("mornings", note="holidays")
        assert paused.status is FlowStatus.PAUSED
        # What runs by hand runs whatever the schedule says.
        assert (await (await client.run_flow("mornings")).wait(30)).status is CycleStatus.COMPLETED
        assert (await client.stop_flow("mornings", reason="sold")).status is FlowStatus.STOPPED
