"""Paused flows: running cycles go on, due times are recorded, and nothing begins."""

import pytest

from tests.stores.scheduler.bench import MINUTE, Bench
from tests.stores.scheduler.ticks import running, tick
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import FollowUp
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.server.partitions import partition_of
from tradewind.server.schedules.schedule import Span

ONCE = ScheduleDefinition()


async def test_paused_flow_finishes_its_running_cycle_and_begins_none(bench: Bench) -> None:
    due = await running(bench, overlap=OverlapPolicy.QUEUE_ONE)
    state = await tick(bench, due)
    assert state is not None
    bench.clock.advance(MINUTE)
    await tick(bench, bench.now)
    answer = await bench.change_status(FlowStatus.PAUSED, by="ada", reason="maintenance")
    assert answer.stopping == ()
    flow = await bench.flow()
    assert flow.pause is not None
    assert (flow.status, flow.next_execution_ms, flow.pause.by, flow.pause.note, flow.pause.next_ms) == (
        FlowStatus.PAUSED,
        0,
        "ada",
        "maintenance",
        due + 2 * MINUTE,
    )
    assert (await bench.begin(await bench.scheduled_request(due + 2 * MINUTE))).outcome is BeginOutcome.NOT_RUNNING
    assert (await bench.begin(bench.queued_request())).outcome is BeginOutcome.NOT_RUNNING
    assert (await bench.firings())[-1][1:] == ("dropped", -1, 1, "the flow was paused")
    await bench.end(state)
    assert (await bench.flow()).status is FlowStatus.PAUSED
    passed = Span(due + 2 * MINUTE, due + 4 * MINUTE, 3)
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=due + 5 * MINUTE, passed=passed)
    flow = await bench.flow()
    assert (flow.status, flow.pause, flow.next_execution_ms) == (FlowStatus.RUNNING, None, due + 5 * MINUTE)
    assert (await bench.firings())[-1] == (due + 2 * MINUTE, "skipped", -1, 3, 'paused by "ada": maintenance')


@pytest.mark.parametrize("schedule", [ONCE, ScheduleDefinition(MINUTE, max_cycles=1)], ids=["once", "one cycle"])
async def test_resuming_plans_no_time_of_a_schedule_that_is_over(bench: Bench, schedule: ScheduleDefinition) -> None:
    state = await tick(bench, await running(bench, schedule=schedule))
    assert state is not None
    await bench.change_status(FlowStatus.PAUSED)
    await bench.change_status(FlowStatus.RUNNING)
    flow = await bench.flow()
    assert (flow.status, flow.next_execution_ms, flow.has_trigger) == (FlowStatus.RUNNING, 0, False)
    await bench.end(state)
    assert (await bench.flow()).status is FlowStatus.COMPLETED


async def test_resuming_completes_a_flow_whose_last_time_the_pause_dropped(bench: Bench) -> None:
    schedule = ScheduleDefinition(times_ms=(bench.now, bench.now + MINUTE))
    first = await tick(bench, await running(bench, schedule=schedule, overlap=OverlapPolicy.QUEUE_ONE))
    assert first is not None
    bench.clock.advance(MINUTE)
    assert await tick(bench, bench.now) is None
    await bench.end(first)
    await bench.change_status(FlowStatus.PAUSED)
    await bench.change_status(FlowStatus.RUNNING)
    assert (await bench.flow()).status is FlowStatus.COMPLETED


@pytest.mark.parametrize("by_failures", [False, True], ids=["by hand", "by failures"])
async def test_last_cycle_dropped_by_a_pause_begins_after_resuming(bench: Bench, by_failures: bool) -> None:
    schedule = ScheduleDefinition(MINUTE, max_cycles=2)
    due = await running(
        bench, schedule=schedule, overlap=OverlapPolicy.QUEUE_ONE, pause_after_failures=int(by_failures)
    )
    first = await tick(bench, due)
    assert first is not None
    bench.clock.advance(MINUTE)
    assert await tick(bench, bench.now) is None
    assert (await bench.flow()).next_execution_ms == 0
    if not by_failures:
        await bench.change_status(FlowStatus.PAUSED)
    await bench.end(first, CycleStatus.FAILED)
    flow = await bench.flow()
    assert flow.pause is not None
    assert flow.pause.next_ms == due + MINUTE
    bench.clock.advance(MINUTE)
    passed = Span(due + MINUTE, due + MINUTE, 1)
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=due + 2 * MINUTE, passed=passed)
    second = await tick(bench, bench.now)
    assert second is not None
    assert (await bench.flow()).next_execution_ms == 0
    await bench.end(second)
    assert (await bench.flow()).status is FlowStatus.COMPLETED


async def test_paused_flow_with_a_finished_schedule_accepts_a_new_one(bench: Bench) -> None:
    await tick(bench, await running(bench, schedule=ONCE))
    await bench.change_status(FlowStatus.PAUSED)
    await bench.register(digest="d2", schedule=ScheduleDefinition(MINUTE))
    flow = await bench.flow()
    assert flow.pause is not None
    assert (flow.next_execution_ms, flow.pause.next_ms) == (0, bench.now + MINUTE)
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=bench.now + MINUTE)
    assert (await bench.flow()).next_execution_ms == bench.now + MINUTE


async def test_flow_that_completes_while_paused_has_no_pause(bench: Bench) -> None:
    state = await tick(bench, await running(bench, schedule=ScheduleDefinition(MINUTE, max_cycles=1)))
    assert state is not None
    await bench.change_status(FlowStatus.PAUSED, by="ada")
    await bench.end(state)
    flow = await bench.flow()
    assert (flow.status, flow.pause) == (FlowStatus.COMPLETED, None)
    bench.clock.advance(MINUTE)
    await bench.change_status(FlowStatus.RUNNING)
    again = await tick(bench, bench.now)
    assert again is not None
    assert (await bench.flow()).next_execution_ms == 0
    await bench.end(again)
    assert (await bench.flow()).status is FlowStatus.COMPLETED


async def test_changed_schedule_of_a_paused_flow_leaves_the_time_from_which_times_passed(bench: Bench) -> None:
    due = await running(bench)
    await bench.change_status(FlowStatus.PAUSED)
    bench.clock.advance(3 * MINUTE)
    await bench.register(schedule=ScheduleDefinition(2 * MINUTE), digest="d2")
    flow = await bench.flow()
    assert flow.pause is not None
    assert flow.pause.next_ms == due


async def test_consecutive_failures_pause_a_flow(bench: Bench) -> None:
    due = await running(bench, pause_after_failures=2)
    outcomes = [CycleStatus.FAILED, CycleStatus.COMPLETED, CycleStatus.TIMEOUT, CycleStatus.FAILED]
    for place, status in enumerate(outcomes):
        assert (await bench.flow()).status is FlowStatus.RUNNING
        bench.clock.advance(MINUTE if place else 0)
        state = await tick(bench, due + place * MINUTE)
        assert state is not None
        assert (await bench.end(state, status)).follow_up == (FollowUp.SETTLE_OUTBOX if place == 3 else 0)
    flow = await bench.flow()
    assert (flow.status, flow.pause and flow.pause.by) == (FlowStatus.PAUSED, "system")
    assert flow.pause is not None
    assert flow.pause.note == "paused after 2 failed cycles in a row, the last of which was cycle 3"
    assert (flow.pause.failures, flow.pause.failed_cycle) == (2, 3)
    checks = await bench.stores.outbox.check([partition_of("f")], 9)
    assert checks[partition_of("f")].due == ("f",)
    await bench.change_status(FlowStatus.RUNNING)
    await bench.change_status(FlowStatus.PAUSED, by="ada", reason="maintenance")
    flow = await bench.flow()
    assert flow.pause is not None
    assert (flow.pause.failures, flow.pause.failed_cycle) == (0, -1)
    # One failure, then a start: failures are counted anew.
    for target in (FlowStatus.RUNNING, FlowStatus.STOPPED, FlowStatus.RUNNING):
        bench.clock.advance(MINUTE)
        await bench.change_status(target)
        if target is FlowStatus.RUNNING:
            state = await tick(bench, (await bench.flow()).next_execution_ms)
            assert state is not None
            await bench.end(state, CycleStatus.FAILED)
            assert (await bench.flow()).status is FlowStatus.RUNNING
