"""Begins cycles whose planned times waited for the one before to end."""

from collections.abc import Collection

from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.ports.flows import Firings
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.use_cases.begin_cycles import BeginCycles, Wish
from tradewind.scheduler.use_cases.definitions import PlannedRun

_FLOWS_AT_ONCE = 500


class BeginQueued:
    """Level-triggered: it goes by which flows have planned times that wait."""

    def __init__(self, begin: BeginCycles, firings: Firings) -> None:
        self._begin = begin
        self._firings = firings

    async def __call__(self, partitions: Collection[int], epochs: Epochs) -> list[PlannedRun]:
        """Begin the next cycle of every flow in which one waits and none is open; return the runs to hand over."""
        flows = await self._firings.waiting(partitions, _FLOWS_AT_ONCE)
        runs: list[PlannedRun] = []
        while flows:
            wishes = [Wish(flow_id, CycleOrigin.SCHEDULE, queued=True) for flow_id in flows]
            begun = await self._begin(wishes, epochs)
            runs += filter(None, [each.run for each in begun])
            # With overlap `allow`, which the flow may have by now, nothing keeps the next one waiting.
            flows = [
                flow_id for flow_id, each in zip(flows, begun, strict=True) if each.answer.outcome is BeginOutcome.BEGUN
            ]
        return runs
