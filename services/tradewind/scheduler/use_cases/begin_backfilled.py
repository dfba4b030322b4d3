"""Begins the cycles of backfills, as many as each may run at once."""

from collections.abc import Callable, Sequence

from tradewind.scheduler.domain.backfill import Backfill
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.ports.backfills import Backfills
from tradewind.scheduler.ports.owning import NOT_OWNER, Epochs
from tradewind.scheduler.use_cases.begin_cycles import BeginCycles, CycleRequest
from tradewind.scheduler.use_cases.definitions import PlannedRun
from tradewind.server.schedules.unknown_zones import log_unknown_zone

_MOST = 10_000
"""The most backfills of a partition to look at; so many that those which cannot go on do not keep others waiting."""
_AT_ONCE = 100
"""The most cycles to begin together."""


class BeginBackfilled:
    """Level-triggered: it goes by the backfills that have room for more cycles, and their positions.

    Flows whose definitions take long to parse are passed to `learn`, and begin when it is called again after that.
    """

    def __init__(self, begin: BeginCycles, backfills: Backfills, learn: Callable[[str], None]) -> None:
        self._begin = begin
        self._backfills = backfills
        self._learn = learn

    async def __call__(self, epochs: Epochs) -> list[PlannedRun]:
        """Begin as many cycles of every backfill as there is room for; return the runs to hand over."""
        runs: list[PlannedRun] = []
        for flow_id, backfill_id in await self._backfills.active(list(epochs), _MOST):
            runs += await self.one(flow_id, backfill_id, epochs, wait=False)
        return runs

    async def one(
        self, flow_id: str, backfill_id: int, epochs: Epochs = NOT_OWNER, *, wait: bool = True
    ) -> list[PlannedRun]:
        """Begin as many cycles of one backfill as there is room for; return the runs to hand over.

        Without `wait`, none begins while the definition of the flow is still to be parsed and that takes long.
        """
        runs: list[PlannedRun] = []
        while True:
            (backfill,) = await self._backfills.find(flow_id, [backfill_id])
            requests = _cycle_requests(backfill)[:_AT_ONCE] if backfill else []
            begun = await self._begin(requests, epochs, wait=wait) if requests else []
            runs += filter(None, [each.run for each in begun])
            if not wait and any(each.answer.outcome is BeginOutcome.REVISION_CHANGED for each in begun):
                self._learn(flow_id)
            # If the backfill was not moved on, somebody else moves it, the flow is paused, or there is no room.
            if not any(each.answer.outcome in (BeginOutcome.BEGUN, BeginOutcome.DUPLICATE) for each in begun):
                return runs


def _cycle_requests(backfill: Backfill) -> Sequence[CycleRequest]:
    """Return requests for the steps that may begin now: none if a replica that knows the time zone has to do it."""
    if backfill.draft.schedule.unknown_zone:
        log_unknown_zone(backfill.draft.schedule.zone)
        return ()
    return [
        CycleRequest(backfill.draft.flow_id, CycleOrigin.BACKFILL, planned_ms=step.position_ms, backfill=step)
        for step in backfill.steps()
    ]
