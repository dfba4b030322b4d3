"""What cycles that run for nodes of other flows need of the node task manager."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.sub_flow import SubFlowReport, SubFlowWait


class SubFlowNodes(Protocol):
    """Nodes that wait for cycles. Every method raises PeerUnavailable when the node task manager cannot be reached."""

    def waits(self, run: RunName, user_id: str) -> AsyncIterator[SubFlowWait]:
        """Yield the nodes of a run that wait, without their inputs."""
        ...

    async def inputs(self, run: RunName, user_id: str, nodes: Sequence[str]) -> list[SubFlowWait]:
        """Return those of these nodes that wait, with their inputs; at most 100, and maybe only the first of them."""
        ...

    async def report(self, reports: Sequence[SubFlowReport]) -> list[bool]:
        """Say what became of cycles, at most 100; say of each whether its node waited for it. It may be repeated."""
        ...
