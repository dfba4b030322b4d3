"""What cycles that run for nodes of other flows need from the node task manager."""

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
        """Return the waiting nodes among these, at most 100, with their inputs; the answer may stop early."""
        ...

    async def report(self, reports: Sequence[SubFlowReport]) -> list[bool]:
        """Report on up to 100 cycles; return for each whether its node waited for it. The call may be repeated."""
        ...
