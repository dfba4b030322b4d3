"""The variables that flows carry from cycle to cycle."""

from typing import Protocol

from tradewind.scheduler.domain.chain_state import UpdateResult
from tradewind.scheduler.domain.memory import Memory


class FlowMemories(Protocol):
    """The variables that flows carry from cycle to cycle, under compare-and-set; they are deleted with their flow."""

    async def load(self, flow_id: str) -> Memory | None:
        """Return a copy of the variables of a flow, None when there is no flow, or it is being deleted."""
        ...

    async def try_save(self, flow_id: str, memory: Memory) -> UpdateResult:
        """Write variables over the previous version.

        Answers `conflict` when another version is on record, `missing` when `load` would return None.
        """
        ...
