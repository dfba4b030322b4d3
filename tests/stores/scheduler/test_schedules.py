"""Planned times: their outcomes, overlap, the end of a schedule."""

import pytest
from msgspec import structs

from tests.stores.scheduler.bench import MINUTE, Bench
from tests.stores.scheduler.ticks import running, tick
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import STATUS, CycleOrigin, UpdateOutcome
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.event_schedule import EventSchedule
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.domain.schedule_definition import CatchUp, ScheduleDefinition
from tradewind.server.partitions import partition_of
from tradewind.server.schedules.schedule import Span

ONCE = ScheduleDefinition()


async def test_latest_passed_time_fires_and_earlier_ones_are_missed(bench: Bench) -> None:
    due = await running(bench)
    bench.clock.advance(3 * MINUTE + 5)
    answer = await bench.begin(await bench.scheduled_request(due))
    assert answer.next_ms == (await bench.flow()).next_execution_ms == due + 4 * MINUTE
    assert (await bench.state(RunName("f", 0))).facts.planned_ms == due + 3 * MINUTE
    assert await bench.firings() == [
        (due, "missed", -1, 3, "found due too late"),
        (due + 3 * MINUTE, "fired", 0, 1, ""),
    ]


async def test_redelivered_trigger_changes_no_recorded_firings(bench: Bench) -> None:
    due = await running(bench)
    bench.clock.advance(3 * MINUTE + 5)
    first = await bench.begin(await bench.scheduled_request(due))
    before = await bench.firings()
    bench.clock.advance(2 * MINUTE)
    again = await bench.begin(await bench.scheduled_request(due))
    assert (again.outcome, again.next_ms) == (BeginOutcome.SETTLED, first.next_ms)
    assert await bench.firings() == before


async def test_catch_up_all_fires_each_passed_time_within_the_window(bench: Bench) -> None:
    schedule = ScheduleDefinition(MINUTE, catch_up=CatchUp.ALL, window_ms=150_000)
    due = await running(bench, schedule=schedule)
    bench.clock.advance(4 * MINUTE)
    while due <= bench.now:
        answer = await bench.begin(await bench.scheduled_request(due))
        due = answer.next_ms
    start = bench.now - 4 * MINUTE
    assert await bench.firings() == [
        (start, "missed", -1, 2, "found due too late"),
        *((start + (2 + cycle) * MINUTE, "fired", cycle, 1, "") for cycle in range(3)),
    ]


async def test_catch_up_none_misses_a_late_time(bench: Bench) -> None:
    due = await running(bench, schedule=ScheduleDefinition(60 * MINUTE, catch_up=CatchUp.NONE))
    bench.clock.advance(MINUTE)
    assert await tick(bench, due) is None
    assert await bench.firings() == [(due, "missed", -1, 1, "found due too late")]
    assert (await bench.flow()).next_execution_ms == due + 60 * MINUTE


@pytest.mark.parametrize(
    ("overlap", "fired"),
    [
        (OverlapPolicy.QUEUE_ONE, [0, 1, 2]),
        (OverlapPolicy.QUEUE_ALL, [0, 1, 2]),
        (OverlapPolicy.CANCEL_RUNNING, [0, 2]),
    ],
)
async def test_due_time_never_overtakes_a_waiting_time(bench: Bench, overlap: OverlapPolicy, fired: list[int]) -> None:
    due = await running(bench, overlap=overlap)
    state = await tick(bench, due)
    assert state is not None
    bench.clock.advance(MINUTE)
    assert await tick(bench, due + MINUTE) is None
    await bench.end(await bench.state(state.name))
    bench.clock.advance(MINUTE - 1)
    assert (
        await bench.begin(await bench.scheduled_request(due + 2 * MINUTE, ahead=True))
    ).outcome is BeginOutcome.EARLY
    bench.clock.advance(1)
    assert await tick(bench, due + 2 * MINUTE) is None
    for _ in fired[1:]:
        await bench.end(await bench.begun(bench.queued_request()))
    assert (await bench.begin(bench.queued_request())).outcome is BeginOutcome.SETTLED
    lines = [(line[0], line[2]) for line in await bench.firings() if line[1] == "fired"]
    assert lines == [(due + place * MINUTE, cycle) for cycle, place in enumerate(fired)]


async def test_cancel_running_stops_the_running_cycle(bench: Bench) -> None:
    due = await running(bench, overlap=OverlapPolicy.CANCEL_RUNNING)
    first = await tick(bench, due)
    assert first is not None
    bench.clock.advance(MINUTE)
    answer = await bench.begin(await bench.scheduled_request(bench.now))
    assert (answer.outcome, answer.stopping) == (BeginOutcome.SETTLED, True)
    stop = (await bench.state(first.name)).stop
    assert stop is not None
    assert (stop.by, "overlap is cancel_running" in stop.reason) == ("scheduler", True)
    bench.clock.advance(MINUTE)
    assert not (await bench.begin(await bench.scheduled_request(bench.now))).stopping
    await bench.end(await bench.state(first.name), CycleStatus.CANCELLED)
    assert (await bench.begun(bench.queued_request())).facts.planned_ms == due + 2 * MINUTE
    assert [line[1:] for line in await bench.firings()] == [
        ("fired", 0, 1, ""),
        ("dropped", -1, 1, "a later planned time took its place"),
        ("fired", 1, 1, ""),
    ]


async def test_cancel_running_finds_the_running_cycle_among_many_sub_flow_cycles(bench: Bench) -> None:
    due = await running(bench, overlap=OverlapPolicy.CANCEL_RUNNING)
    parents = [Parent(RunName("above", cycle), "r", "node", 1) for cycle in range(501)]
    await bench.stores.cycles.begin([bench.request(origin=CycleOrigin.SUB_FLOW, parent=parent) for parent in parents])
    first = await tick(bench, due)
    assert first is not None
    bench.clock.advance(MINUTE)
    assert (await bench.begin(await bench.scheduled_request(bench.now))).stopping
    assert (await bench.state(first.name)).stop is not None
    assert (await bench.state(RunName("f", 0))).stop is None


@pytest.mark.parametrize("overlap", list(OverlapPolicy))
async def test_manual_run_is_never_queued(bench: Bench, overlap: OverlapPolicy) -> None:
    await running(bench, overlap=overlap)
    await bench.begun()
    expected = BeginOutcome.BEGUN if overlap is OverlapPolicy.ALLOW else BeginOutcome.OVERLAP
    assert (await bench.begin()).outcome is expected
    assert await bench.firings() == []


async def test_flow_completes_after_max_cycles_and_may_start_again(bench: Bench) -> None:
    due = await running(bench, schedule=ScheduleDefinition(MINUTE, max_cycles=2))
    first = await tick(bench, due)
    assert first is not None
    bench.clock.advance(MINUTE)
    answer = await bench.begin(await bench.scheduled_request(bench.now))
    assert answer.next_ms == 0
    assert answer.state is not None
    await bench.end(answer.state)
    assert (await bench.flow()).status is FlowStatus.RUNNING
    await bench.end(first)
    assert (await bench.flow()).status is FlowStatus.COMPLETED
    await bench.change_status(FlowStatus.RUNNING)
    assert (await bench.begin(await bench.scheduled_request(bench.now + MINUTE))).next_ms > 0


@pytest.mark.parametrize(
    ("overlap", "begun"),
    [
        (OverlapPolicy.SKIP, [0, 3]),
        (OverlapPolicy.QUEUE_ONE, [0, 1]),
        (OverlapPolicy.QUEUE_ALL, [0, 1]),
        (OverlapPolicy.CANCEL_RUNNING, [0, 1]),
    ],
)
async def test_times_that_begin_no_cycle_do_not_count_towards_max_cycles(
    bench: Bench, overlap: OverlapPolicy, begun: list[int]
) -> None:
    due = await running(bench, overlap=overlap, schedule=ScheduleDefinition(MINUTE, max_cycles=2))
    first = await tick(bench, due)
    assert first is not None
    for minute in (1, 2):
        bench.clock.advance(MINUTE)
        if (await bench.flow()).next_execution_ms:
            assert await tick(bench, due + minute * MINUTE) is None
    await bench.end(await bench.state(first.name))
    bench.clock.advance(MINUTE)
    if overlap is OverlapPolicy.SKIP:
        last = await tick(bench, bench.now)
    else:
        last = await bench.begun(bench.queued_request())
    assert last is not None
    assert [(line[0] - due) // MINUTE for line in await bench.firings() if line[1] == "fired"] == begun
    assert (await bench.flow()).next_execution_ms == 0
    await bench.end(last)
    assert (await bench.flow()).status is FlowStatus.COMPLETED


async def test_times_dropped_by_cancel_running_do_not_count_towards_max_cycles(bench: Bench) -> None:
    schedule = ScheduleDefinition(MINUTE, max_cycles=3)
    due = await running(bench, overlap=OverlapPolicy.CANCEL_RUNNING, schedule=schedule)
    first = await tick(bench, due)
    assert first is not None
    for _ in range(3):
        bench.clock.advance(MINUTE)
        assert await tick(bench, bench.now) is None
    assert (await bench.flow()).next_execution_ms == bench.now + MINUTE
    await bench.end(await bench.state(first.name))
    await bench.end(await bench.begun(bench.queued_request()))
    bench.clock.advance(MINUTE)
    assert await tick(bench, bench.now) is not None
    assert (await bench.flow()).next_execution_ms == 0


async def test_times_dropped_by_a_pause_do_not_count_towards_max_cycles(bench: Bench) -> None:
    schedule = ScheduleDefinition(MINUTE, max_cycles=3)
    first = await tick(bench, await running(bench, overlap=OverlapPolicy.QUEUE_ONE, schedule=schedule))
    assert first is not None
    bench.clock.advance(MINUTE)
    assert await tick(bench, bench.now) is None
    await bench.change_status(FlowStatus.PAUSED)
    await bench.end(first)
    bench.clock.advance(MINUTE)
    await bench.change_status(FlowStatus.RUNNING)
    for _ in range(2):
        state = await tick(bench, bench.now)
        assert state is not None
        await bench.end(state)
        bench.clock.advance(MINUTE)
    assert (await bench.flow()).status is FlowStatus.COMPLETED


async def test_lowering_max_cycles_below_begun_cycles_begins_no_more(bench: Bench) -> None:
    first = await tick(bench, await running(bench, schedule=ScheduleDefinition(MINUTE, max_cycles=3)))
    assert first is not None
    bench.clock.advance(MINUTE)
    second = await tick(bench, bench.now)
    assert second is not None
    await bench.register(digest="d2", schedule=ScheduleDefinition(MINUTE, max_cycles=2))
    await bench.end(first)
    bench.clock.advance(MINUTE)
    assert await tick(bench, bench.now) is None
    assert (await bench.firings())[-1][1:] == ("dropped", -1, 1, "max_cycles was reached")
    flow = await bench.flow()
    assert (flow.status, flow.next_execution_ms) == (FlowStatus.RUNNING, 0)
    await bench.end(second)
    assert (await bench.flow()).status is FlowStatus.COMPLETED


async def test_missing_the_last_time_completes_the_flow(bench: Bench) -> None:
    late = ScheduleDefinition(times_ms=(bench.now,), catch_up=CatchUp.NONE)
    due = await running(bench, schedule=late)
    bench.clock.advance(MINUTE)
    assert await tick(bench, due) is None
    assert (await bench.flow()).status is FlowStatus.COMPLETED


async def test_overlap_does_not_use_up_the_cycle_of_a_flow_that_runs_once(bench: Bench) -> None:
    due = await running(bench, schedule=ONCE, overlap=OverlapPolicy.SKIP)
    by_hand = await bench.begun()
    request = await bench.scheduled_request(due)
    answer = await bench.begin(request)
    assert (answer.outcome, answer.next_ms) == (BeginOutcome.OVERLAP, 0)
    await bench.end(by_hand)
    answer = await bench.begin(request)
    assert (answer.outcome, answer.next_ms) == (BeginOutcome.BEGUN, 0)


@pytest.mark.parametrize(
    ("ending", "status"), [(CycleStatus.COMPLETED, FlowStatus.COMPLETED), (CycleStatus.FAILED, FlowStatus.FAILED)]
)
async def test_flow_that_runs_once_ends_with_its_scheduled_cycle(
    bench: Bench, ending: CycleStatus, status: FlowStatus
) -> None:
    due = await running(bench, schedule=ONCE)
    await bench.end(await bench.begun(), ending)
    assert (await bench.flow()).status is FlowStatus.RUNNING
    state = await bench.begun(await bench.scheduled_request(due))
    await bench.end(state, ending)
    assert (await bench.flow()).status is status
    await bench.change_status(FlowStatus.RUNNING)
    assert (await bench.flow()).status is FlowStatus.RUNNING


async def test_flow_whose_last_cycles_end_together_ends_as_the_last_of_them(bench: Bench) -> None:
    due = await running(bench, schedule=ONCE)
    states = [await bench.begun(), await bench.begun(await bench.scheduled_request(due))]
    endings = (CycleStatus.COMPLETED, CycleStatus.FAILED)
    ended = [structs.replace(state, status=ending) for state, ending in zip(states, endings, strict=True)]
    results = await bench.stores.states.update_many([RunUpdate(state, (STATUS,)) for state in ended])
    assert {result.outcome for result in results} == {UpdateOutcome.OK}
    assert (await bench.flow()).status is FlowStatus.FAILED


async def test_a_stopped_flow_that_runs_once_stays_stopped(bench: Bench) -> None:
    due = await running(bench, schedule=ONCE)
    state = await bench.begun(await bench.scheduled_request(due))
    await bench.change_status(FlowStatus.STOPPED)
    await bench.end(await bench.state(state.name), CycleStatus.CANCELLED)
    assert (await bench.flow()).status is FlowStatus.STOPPED


async def test_stop_drops_queued_times(bench: Bench) -> None:
    due = await running(bench, overlap=OverlapPolicy.QUEUE_ALL)
    await tick(bench, due)
    bench.clock.advance(MINUTE)
    await tick(bench, bench.now)
    await bench.change_status(FlowStatus.STOPPED)
    assert (await bench.firings())[-1][1:] == ("dropped", -1, 1, "the flow was stopped")
    assert await bench.stores.firings.waiting([partition_of("f")], 9) == []


@pytest.mark.parametrize("status", [FlowStatus.STOPPED, FlowStatus.PAUSED])
async def test_stop_or_pause_drops_every_queued_time_even_past_the_limit(bench: Bench, status: FlowStatus) -> None:
    state = await tick(bench, await running(bench, overlap=OverlapPolicy.QUEUE_ALL))
    assert state is not None
    for minute in range(101):
        if minute == 100:
            await bench.end(state)
        bench.clock.advance(MINUTE)
        assert await tick(bench, bench.now) is None
    await bench.change_status(status)
    assert [line[1] for line in await bench.firings()] == ["fired", *["dropped"] * 101]
    assert await bench.stores.firings.waiting([partition_of("f")], 9) == []


async def test_time_that_was_settled_before_its_flow_was_stopped_keeps_its_line(bench: Bench) -> None:
    due = await running(bench)
    assert await tick(bench, due) is not None
    await bench.change_status(FlowStatus.STOPPED, passed=Span(due, due, 1))
    assert [line[1] for line in await bench.firings()] == ["fired"]


async def test_time_that_was_settled_before_its_schedule_changed_keeps_its_line(bench: Bench) -> None:
    due = await running(bench)
    passed = Span(due, due, 1)
    assert await tick(bench, due) is not None
    other = ScheduleDefinition(times_ms=(due + 5,))
    await bench.register(digest="d2", schedule=other, first_ms=due + 5, passed=passed)
    assert [line[1] for line in await bench.firings()] == ["fired"]
    bench.clock.advance(MINUTE)
    passed = Span(due + 5, due + 5, 1)
    await bench.register(digest="d3", schedule=ScheduleDefinition(on=EventSchedule("e")), first_ms=-1, passed=passed)
    assert (await bench.firings())[-1] == (due + 5, "dropped", -1, 1, "the schedule was changed")


async def test_newest_thousand_firings_are_kept_and_read_in_pages(bench: Bench) -> None:
    schedule = ScheduleDefinition(1000, catch_up=CatchUp.NONE)
    due = await running(bench, schedule=schedule)
    for _ in range(1003):
        state = await tick(bench, bench.now)
        assert state is not None
        await bench.end(state)
        bench.clock.advance(1000)
    lines = await bench.firings()
    assert (len(lines), lines[0][0]) == (1000, due + 3000)
    page = await bench.stores.firings.newest("f", due + 5000, 10)
    assert [line.planned_ms for line in page] == [due + 4000, due + 3000]
