"""Learns definitions that take long to parse, on the side."""

from tradewind.scheduler.ports.waking import WakeOwner, Work
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.definitions import Definitions


class LearnDefinitions:
    """Learns definitions of flows that have cycles waiting, so that cycles of other flows need not wait for that."""

    def __init__(self, definitions: Definitions, background: Background, wake: WakeOwner) -> None:
        self._definitions = definitions
        self._background = background
        self._wake = wake
        self._learning: set[str] = set()

    def __call__(self, flow_id: str) -> None:
        """Learn the current definition of a flow, then wake the owner of the flow to begin what waits."""
        if flow_id not in self._learning:
            self._learning.add(flow_id)
            self._background.begin(self._learn(flow_id), "learning of the definition of a large flow")

    async def _learn(self, flow_id: str) -> None:
        try:
            await self._definitions.load([flow_id])
        finally:
            self._learning.discard(flow_id)
        self._wake(Work.WAITING, flow_id, 0)
