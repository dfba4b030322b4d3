"""When cycles of a flow are planned, by its schedule and its record."""

from collections.abc import Iterator

from tradewind.scheduler.domain.flow_definition import FlowDefinition
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.use_cases.faults import schedule_over
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.schedules.schedule import Span


def first_when_registered(
    definition: FlowDefinition, now_ms: int, standing: FlowRecord | None = None
) -> tuple[int, Span | None]:
    """Return the first planned time of a flow whose schedule is new, and the times of the old one that it leaves out.

    The first is 0 for a schedule that begins with the flow, and the standby time for one that begins on events. A time
    for which `standing`, the running flow on record, has yet to begin a cycle stays planned once it has come, if the
    new schedule plans it as well. Raises InvalidInput when nothing more is planned.
    """
    schedule = definition.schedule
    if schedule.begins_with_the_flow:
        return 0, None
    reached = _reached(standing.schedule, standing.next_execution_ms, now_ms) if standing else None
    if schedule.on:
        if schedule.is_over(now_ms):
            raise InvalidInput([Violation("schedule.end", "has passed, so no event would ever begin a cycle")])
        return schedule.standby_ms, reached
    planned = schedule.planned(0)
    if reached is not None and planned.after(reached.first_ms - 1) == reached.first_ms:
        return reached.first_ms, None
    first_ms = planned.after(now_ms - 1)
    if first_ms is None:
        raise InvalidInput([Violation("schedule", "has no times left: all of them have passed")])
    return first_ms, reached


def first_when_started(flow: FlowRecord, start_at_ms: int, now_ms: int) -> tuple[int | None, Span | None]:
    """Return the first planned time of a flow that is started or resumed (0 for now), and the times its pause skipped.

    The first planned time is None for a paused flow that has nothing more planned. Raises FailedPrecondition for such a
    flow that is not paused, InvalidInput for a `start_at_ms` of a flow that begins on events.
    """
    schedule, pause, passed = flow.schedule, flow.pause, None
    first_ms: int | None = None
    if schedule.on and start_at_ms:
        message = f"the flow begins on {schedule.on.description}: set the field start of its schedule instead"
        raise InvalidInput([Violation("start_at", message)])
    if pause is not None and not pause.next_ms:
        # The schedule was over when the pause began, and its last cycle runs.
        return None, None
    # A flow that runs once, and whose time has passed, begins now.
    if pause is not None and not schedule.on and pause.next_ms > (now_ms if schedule.once else 0):
        first_ms = schedule.first_ahead(flow.flow_id, pause.next_ms, now_ms)
        passed = schedule.planned(pause.next_ms).span(pause.next_ms - 1, first_ms or now_ms + 1)
    elif not schedule.is_over(max(start_at_ms, now_ms)):
        if schedule.on:
            first_ms = schedule.standby_ms
        elif schedule.begins_with_the_flow:
            first_ms = start_at_ms
        else:
            first_ms = schedule.planned(start_at_ms).after((start_at_ms or now_ms) - 1)
    if first_ms is None and pause is None:
        raise schedule_over(flow)
    return first_ms, passed


def times_left_by_stop(flow: FlowRecord, now_ms: int) -> Span | None:
    """Return the planned times that have come, and for which a running or paused flow begins no cycle if it stops."""
    return _reached(flow.schedule, flow.pause.next_ms if flow.pause else flow.next_execution_ms, now_ms)


def _reached(schedule: ScheduleDefinition, next_ms: int, now_ms: int) -> Span | None:
    """Return the planned times that have come, of a flow whose next one is `next_ms`; None also in an unknown zone."""
    if not 0 < next_ms <= now_ms or schedule.unknown_zone:
        return None
    return schedule.planned(next_ms).span(next_ms - 1, now_ms + 1)


def planned_times(flow: FlowRecord, now_ms: int) -> Iterator[int]:
    """Yield the coming planned times of a flow; for a flow that is not running, as if it were started or resumed now.

    A flow that begins on events has none.
    """
    if flow.status is FlowStatus.RUNNING:
        if flow.next_execution_ms > 0:
            yield from times_from(flow.schedule, flow.next_execution_ms)
    elif flow.pause:
        first_ms = flow.pause.next_ms and flow.schedule.first_ahead(flow.flow_id, flow.pause.next_ms, now_ms)
        if first_ms:
            yield from times_from(flow.schedule, first_ms)
    else:
        yield from times_from(flow.schedule, now_ms)


def times_from(schedule: ScheduleDefinition, first_ms: int) -> Iterator[int]:
    """Yield the planned times of a schedule that is followed from `first_ms` on."""
    planned = schedule.planned(first_ms)
    following = planned.after(first_ms - 1)
    while following is not None:
        yield following
        following = planned.after(following)
