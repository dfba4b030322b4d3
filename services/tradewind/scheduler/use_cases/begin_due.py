"""Begins the cycles of flows that are due, at their times or for events."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.domain.due import DueAnswer, DueFlow
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.use_cases.begin_cycles import BeginCycles, BeginResult, CycleRequest
from tradewind.scheduler.use_cases.definitions import PlannedRun
from tradewind.server.partitions import partition_of
from tradewind.server.schedules.unknown_zones import RETRY_MS

_ONCE_RETRY_MS = 1_000
_CHANGED_RETRY_MS = 100
_UNREADABLE_RETRY_MS = 5_000

_SUPERSEDED = {BeginOutcome.NOT_RUNNING, BeginOutcome.STALE_EPOCH, BeginOutcome.NOT_FOUND, BeginOutcome.DELETING}
"""A newer schedule is already with the trigger service, or on its way there."""


@dataclass(frozen=True, slots=True)
class BegunDue:
    """The answers to the triggers, the runs to hand over, and the flows to try again when they are due.

    Flows in `late` are to be tried again at once, by themselves: their definitions take long to parse. `lost` are the
    partitions that turned out to have a newer owner.
    """

    answers: list[DueAnswer]
    runs: list[PlannedRun]
    early: list[DueFlow]
    late: list[DueFlow] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)


class BeginDue:
    """Begins the cycles of all due triggers at hand together, in few script calls whatever their partitions."""

    def __init__(self, begin: BeginCycles) -> None:
        self._begin = begin

    async def __call__(self, due: Sequence[DueFlow], epochs: Epochs, *, wait: bool = False) -> BegunDue:
        """Begin cycles as the owner of their partitions, including cycles that are due in a moment.

        A trigger of a partition that has a newer owner gets no answer: its lease goes to the newer owner. With `wait`,
        none is late: all wait until all definitions are parsed.
        """
        requests = [
            CycleRequest(
                flow.flow_id,
                CycleOrigin.SCHEDULE,
                due_ms=flow.planned_ms,
                now_ms=max(flow.now_ms, flow.planned_ms),
                ahead=flow.planned_ms > flow.now_ms and flow.event is None,
                schedule_epoch=flow.schedule_epoch,
                traceparent=flow.traceparent,
                event=flow.event,
            )
            for flow in due
        ]
        answers: list[DueAnswer] = []
        runs: list[PlannedRun] = []
        early: list[DueFlow] = []
        late: list[DueFlow] = []
        lost: set[int] = set()
        for flow, begun in zip(due, await self._begin(requests, epochs, wait=wait), strict=True):
            if begun.answer.outcome is BeginOutcome.EARLY:
                early.append(flow)
                continue
            if begun.answer.outcome is BeginOutcome.REVISION_CHANGED and not wait:
                late.append(flow)
                continue
            if begun.answer.outcome is BeginOutcome.OVERTAKEN:
                lost.add(partition_of(flow.flow_id))
                continue
            answers.append(_answer(flow, begun))
            if (run := begun.run) is not None:
                runs.append(run)
        return BegunDue(answers, runs, early, late, lost)


def _answer(flow: DueFlow, begun: BeginResult) -> DueAnswer:
    outcome, next_ms = begun.answer.outcome, begun.answer.next_ms
    if outcome in _SUPERSEDED:
        return DueAnswer(flow.token)
    if outcome is BeginOutcome.OVERLAP:
        return DueAnswer(flow.token, retry_ms=_ONCE_RETRY_MS, error="a cycle of the flow is still running")
    if outcome is BeginOutcome.REVISION_CHANGED:
        return DueAnswer(flow.token, retry_ms=_CHANGED_RETRY_MS, error="the flow kept changing")
    if outcome is BeginOutcome.UNREADABLE:
        return DueAnswer(flow.token, retry_ms=_UNREADABLE_RETRY_MS, error="a record of the flow cannot be read")
    if outcome is BeginOutcome.UNKNOWN_ZONE:
        return DueAnswer(flow.token, retry_ms=RETRY_MS, error="a scheduler does not know the flow's time zone")
    return DueAnswer(flow.token, next_ms)
