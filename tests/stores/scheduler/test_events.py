"""Cycles that begin on events: one for each event, under every overlap policy, and each event is on record."""

import json
from typing import Any

from tests.stores.scheduler.bench import Bench, shape
from tradewind.scheduler.domain.beginning import BeginAnswer, BeginOutcome, BeginRequest, EventFiring
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.event_schedule import EventSchedule
from tradewind.scheduler.domain.firing import FiringOutcome
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.server.partitions import partition_of

ON_PRICE = ScheduleDefinition(on=EventSchedule("price"))


async def listening(bench: Bench, schedule: ScheduleDefinition = ON_PRICE, **changes: Any) -> None:
    """Register and start a flow that begins on events."""
    await bench.register(schedule=schedule, first_ms=schedule.standby_ms, **changes)
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=schedule.standby_ms)


async def event(bench: Bench, name: str, came_ms: int = 0, **changes: Any) -> BeginRequest:
    """Return a request for the event `name`, whose payload is {"n": name}."""
    flow = await bench.flow()
    came_ms = came_ms or bench.now
    made: dict[str, Any] = {
        "shape": shape("f", flow.revision, schedule=flow.schedule),
        "origin": CycleOrigin.SCHEDULE,
        "planned_ms": came_ms,
        "due_ms": came_ms,
        "next_ms": flow.schedule.standby_ms,
        "schedule_epoch": flow.schedule_epoch,
        "inputs_json": json.dumps({"n": name}),
        "event": EventFiring(name),
    }
    return bench.request(**(made | changes))


async def publish(bench: Bench, name: str, came_ms: int = 0, **changes: Any) -> BeginAnswer:
    """Handle an event, a moment after the previous one, and return the answer."""
    answer = await bench.begin(await event(bench, name, came_ms, **changes))
    bench.clock.advance(1)
    return answer


async def ledger(bench: Bench) -> list[tuple[str, str, int, str]]:
    """Return the firings of events, the earliest first: event, outcome, cycle, reason."""
    lines = reversed(await bench.stores.firings.newest("f", 0, 2000))
    return [(line.event_id, line.outcome.value, line.cycle, line.reason) for line in lines]


async def in_outbox(bench: Bench) -> bool:
    found = await bench.stores.outbox.check([partition_of("f")], 10)
    return "f" in found[partition_of("f")].due


async def test_event_begins_a_cycle_with_its_payload_and_the_flow_keeps_listening(bench: Bench) -> None:
    await listening(bench)
    assert (await bench.flow()).next_execution_ms == -1
    answer = await publish(bench, "quote 7")
    assert answer.outcome is BeginOutcome.BEGUN
    assert answer.state is not None
    assert await bench.state(answer.state.name) == answer.state
    assert answer.state.facts.inputs_json == '{"n": "quote 7"}'
    await bench.end(answer.state)
    flow = await bench.flow()
    assert (flow.status, flow.next_execution_ms) == (FlowStatus.RUNNING, -1)
    assert await ledger(bench) == [("quote 7", "fired", 0, "")]


async def test_repeated_event_begins_no_cycle_and_changes_no_firings(bench: Bench) -> None:
    await listening(bench)
    first = await event(bench, "e")
    begun = await bench.begin(first)
    before = await bench.firings()
    bench.clock.advance(60_000)
    again = await bench.begin(await event(bench, "e", first.due_ms))
    assert (again.outcome, again.run, again.next_ms) == (BeginOutcome.DUPLICATE, begun.run, -1)
    await bench.change_status(FlowStatus.PAUSED)
    await bench.begin(await event(bench, "e", first.due_ms))
    assert await bench.firings() == before


async def test_event_that_comes_again_at_another_time_begins_no_cycle_for_a_day(bench: Bench) -> None:
    """A trigger service whose store has lost that an event came takes it for a new one."""
    await listening(bench, overlap=OverlapPolicy.ALLOW)
    for name in ("e", "a b@e", "e "):
        assert (await publish(bench, name)).outcome is BeginOutcome.BEGUN
    assert (await publish(bench, "late", event=EventFiring("late", FiringOutcome.MISSED, "too late"))).state is None
    before = await bench.firings()
    bench.clock.advance(60_000)
    for name in ("e", "a b@e", "e ", "late"):
        again = await publish(bench, name)
        assert (again.outcome, again.next_ms) == (BeginOutcome.SETTLED, -1)
    assert await bench.firings() == before
    bench.clock.advance(24 * 3600 * 1000)
    assert (await publish(bench, "e")).outcome is BeginOutcome.BEGUN


async def test_overlap_skip_skips_events_while_a_cycle_runs(bench: Bench) -> None:
    await listening(bench, overlap=OverlapPolicy.SKIP)
    await publish(bench, "a")
    assert (await publish(bench, "b")).outcome is BeginOutcome.SETTLED
    assert await ledger(bench) == [("a", "fired", 0, ""), ("b", "skipped", -1, "cycle 0 was running")]


async def test_queued_events_keep_their_order_and_their_payloads(bench: Bench) -> None:
    await listening(bench, overlap=OverlapPolicy.QUEUE_ALL)
    first = await publish(bench, "a")
    assert first.state is not None
    await publish(bench, "b")
    await publish(bench, "c d")
    assert await bench.stores.firings.waiting([partition_of("f")], 5) == ["f"]
    for name in ("b", "c d"):
        await bench.end(first.state)
        first = await bench.begin(bench.queued_request())
        assert first.state is not None
        assert json.loads(first.state.facts.inputs_json) == {"n": name}
        assert await bench.state(first.state.name) == first.state
    assert (await bench.begin(bench.queued_request())).outcome is BeginOutcome.OVERLAP
    assert await ledger(bench) == [("a", "fired", 0, ""), ("b", "fired", 1, ""), ("c d", "fired", 2, "")]


async def test_queue_one_drops_events_beyond_the_first(bench: Bench) -> None:
    await listening(bench, overlap=OverlapPolicy.QUEUE_ONE)
    for name in ("a", "b", "c"):
        await publish(bench, name)
    assert await ledger(bench) == [
        ("a", "fired", 0, ""),
        ("b", "queued", -1, "cycle 0 was running"),
        ("c", "dropped", -1, "cycle 0 was running, with 1 already waiting"),
    ]


async def test_cancel_running_begins_the_latest_event(bench: Bench) -> None:
    await listening(bench, overlap=OverlapPolicy.CANCEL_RUNNING)
    first = await publish(bench, "a")
    assert first.state is not None
    assert (await publish(bench, "b")).stopping
    await publish(bench, "c")
    await bench.end(await bench.state(first.state.name), CycleStatus.CANCELLED)
    last = await bench.begin(bench.queued_request())
    assert last.state is not None
    assert json.loads(last.state.facts.inputs_json) == {"n": "c"}
    assert await ledger(bench) == [
        ("a", "fired", 0, ""),
        ("b", "dropped", -1, "a later planned time took its place"),
        ("c", "fired", 1, ""),
    ]


async def test_overlap_allow_begins_each_event_at_once(bench: Bench) -> None:
    await listening(bench, overlap=OverlapPolicy.ALLOW)
    requests = [await event(bench, name, bench.now + at) for at, name in enumerate("abc")]
    answers = await bench.stores.cycles.begin(requests)
    assert [answer.run.cycle for answer in answers if answer.run] == [0, 1, 2]


async def test_events_during_a_pause_are_skipped_and_later_ones_begin_cycles(bench: Bench) -> None:
    await listening(bench)
    await bench.change_status(FlowStatus.PAUSED, by="ann", reason="lunch")
    assert (await bench.flow()).has_trigger
    await publish(bench, "a")
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=-1)
    assert (await publish(bench, "b")).outcome is BeginOutcome.BEGUN
    assert await ledger(bench) == [("a", "skipped", -1, 'paused by "ann": lunch'), ("b", "fired", 0, "")]


async def test_event_delivered_under_the_epoch_before_a_pause_begins_a_cycle(bench: Bench) -> None:
    await listening(bench)
    epoch = (await bench.flow()).schedule_epoch
    await bench.change_status(FlowStatus.PAUSED)
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=-1)
    assert (await publish(bench, "a", schedule_epoch=epoch)).outcome is BeginOutcome.BEGUN


async def test_event_from_before_a_stop_begins_no_cycle_even_after_a_restart(bench: Bench) -> None:
    await listening(bench, overlap=OverlapPolicy.QUEUE_ALL)
    epoch = (await bench.flow()).schedule_epoch
    await publish(bench, "a")
    await publish(bench, "waits")
    await bench.change_status(FlowStatus.STOPPED)
    assert not (await bench.flow()).has_trigger
    assert (await publish(bench, "b", schedule_epoch=epoch)).state is None
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=-1)
    assert (await publish(bench, "c", schedule_epoch=epoch)).state is None
    assert (await ledger(bench))[1:] == [
        ("waits", "dropped", -1, "the flow was stopped"),
        ("b", "skipped", -1, "the flow is stopped"),
        ("c", "dropped", -1, "the flow was stopped meanwhile"),
    ]


async def test_event_refused_by_the_schedule_is_recorded_with_its_reason(bench: Bench) -> None:
    await listening(bench)
    refused = EventFiring("late", FiringOutcome.MISSED, "found due too late")
    assert (await publish(bench, "late", event=refused)).outcome is BeginOutcome.SETTLED
    assert await ledger(bench) == [("late", "missed", -1, "found due too late")]


async def test_listening_flow_that_changes_hands_is_to_listen_anew(bench: Bench) -> None:
    await listening(bench)
    before = (await bench.flow()).schedule_epoch
    assert await bench.stores.outbox.settle("f", before)
    await bench.register(digest="d2", schedule=ON_PRICE, first_ms=-1)
    assert ((await bench.flow()).schedule_epoch, await in_outbox(bench)) == (before, False)
    await bench.register(digest="d2", schedule=ON_PRICE, first_ms=-1, user_id="ann")
    flow = await bench.flow()
    assert (flow.user_id, flow.next_execution_ms) == ("ann", -1)
    assert flow.schedule_epoch > before
    assert await in_outbox(bench)


async def test_refusal_by_an_outdated_revision_is_not_recorded(bench: Bench) -> None:
    await listening(bench)
    await bench.register(digest="d2", schedule=ON_PRICE, first_ms=-1)
    refused = EventFiring("e", FiringOutcome.SKIPPED, "the flow now begins on something else")
    answer = await publish(bench, "e", event=refused, shape=shape("f", 1, schedule=ON_PRICE))
    assert answer.outcome is BeginOutcome.REVISION_CHANGED
    assert await ledger(bench) == []


async def test_flow_completes_after_max_cycles_and_its_trigger_is_removed(bench: Bench) -> None:
    schedule = ScheduleDefinition(on=EventSchedule("price"), max_cycles=2)
    await listening(bench, schedule)
    await bench.stores.outbox.settle("f", (await bench.flow()).schedule_epoch)
    states = [(await publish(bench, name)).state for name in "ab"]
    assert await in_outbox(bench)
    flow = await bench.flow()
    assert (flow.next_execution_ms, flow.has_trigger) == (0, False)
    assert (await publish(bench, "c")).state is None
    for state in states:
        assert state is not None
        assert (await bench.flow()).status is FlowStatus.RUNNING
        await bench.end(state)
    assert (await bench.flow()).status is FlowStatus.COMPLETED
    assert (await ledger(bench))[2] == ("c", "skipped", -1, "the schedule of the flow is over")


async def test_tidying_completes_a_flow_after_the_end_of_its_window(bench: Bench) -> None:
    schedule = ScheduleDefinition(on=EventSchedule("price"), end_ms=bench.now + 1000)
    await listening(bench, schedule)
    await bench.stores.outbox.settle("f", (await bench.flow()).schedule_epoch)
    await bench.stores.cycles.tidy(partition_of("f"), "", 0)
    assert (await bench.flow()).status is FlowStatus.RUNNING
    bench.clock.advance(1000)
    await bench.stores.cycles.tidy(partition_of("f"), "", 0)
    assert (await bench.flow()).status is FlowStatus.COMPLETED
    assert await in_outbox(bench)


async def test_event_older_than_every_recorded_firing_begins_no_cycle(bench: Bench) -> None:
    await listening(bench, overlap=OverlapPolicy.SKIP)
    first = await event(bench, "first")
    await bench.begin(first)
    for start in range(1, 1001, 100):
        batch = [await event(bench, f"e{at}", first.due_ms + at) for at in range(start, start + 100)]
        await bench.stores.cycles.begin(batch)
    again = await bench.begin(await event(bench, "first", first.due_ms))
    assert again.outcome is BeginOutcome.SETTLED
    assert (await bench.flow()).last_cycle == 0


async def test_a_running_flow_may_change_from_times_to_events_and_back(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING)
    await bench.register(digest="d2", schedule=ON_PRICE, first_ms=-1)
    flow = await bench.flow()
    assert (flow.status, flow.next_execution_ms, flow.has_trigger) == (FlowStatus.RUNNING, -1, True)
    assert (await publish(bench, "a")).outcome is BeginOutcome.BEGUN
    await bench.register(digest="d3")
    assert (await bench.flow()).next_execution_ms > bench.now
