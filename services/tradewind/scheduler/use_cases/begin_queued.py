"""Begins cycles whose planned times have waited for the previous cycle to end."""

from collections.abc import Callable

from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.ports.firings import Firings
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.use_cases.begin_cycles import BeginCycles, CycleRequest
from tradewind.scheduler.use_cases.definitions import PlannedRun

_MOST = 10_000
"""The most flows of a partition to look at; so many that those which cannot begin yet do not keep others waiting."""
_AT_ONCE = 500
"""The most cycles to begin together."""


class BeginQueued:
    """Level-triggered: it goes by the flows that have planned times waiting, except those with a cycle in the way.

    Flows whose definitions take long to parse are passed to `learn`, and begin when it is called again after that.
    """

    def __init__(self, begin: BeginCycles, firings: Firings, learn: Callable[[str], None]) -> None:
        self._begin = begin
        self._firings = firings
        self._learn = learn

    async def __call__(self, epochs: Epochs) -> list[PlannedRun]:
        """Begin the next cycle of every flow that has one waiting and none open; return the runs to hand over."""
        waiting = await self._firings.waiting(list(epochs), _MOST)
        runs: list[PlannedRun] = []
        for first in range(0, len(waiting), _AT_ONCE):
            runs += await self._begin_next(waiting[first : first + _AT_ONCE], epochs)
        return runs

    async def _begin_next(self, flows: list[str], epochs: Epochs) -> list[PlannedRun]:
        runs: list[PlannedRun] = []
        while flows:
            requests = [CycleRequest(flow_id, CycleOrigin.SCHEDULE, queued=True) for flow_id in flows]
            begun = await self._begin(requests, epochs, wait=False)
            runs += filter(None, [each.run for each in begun])
            for flow_id, each in zip(flows, begun, strict=True):
                if each.answer.outcome is BeginOutcome.REVISION_CHANGED:
                    self._learn(flow_id)
            # The flow may have been changed to overlap `allow`: then nothing keeps the next cycle waiting.
            flows = [
                flow_id for flow_id, each in zip(flows, begun, strict=True) if each.answer.outcome is BeginOutcome.BEGUN
            ]
        return runs
