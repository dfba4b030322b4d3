"""A write to a run's chain state."""

from collections.abc import Collection

import msgspec

from tradewind.scheduler.domain.chain_state import STATUS, ChainState
from tradewind.scheduler.domain.cycle_status import CycleStatus, is_terminal
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.log_line import LogText

FLOW_AFTER = {
    CycleStatus.COMPLETED: FlowStatus.COMPLETED,
    CycleStatus.PARTIAL: FlowStatus.FAILED,
    CycleStatus.FAILED: FlowStatus.FAILED,
    CycleStatus.TIMEOUT: FlowStatus.FAILED,
    CycleStatus.CANCELLED: FlowStatus.FAILED,
}
"""The status that a flow takes, by how the last run of its schedule ends."""


class RunUpdate(msgspec.Struct, frozen=True, gc=False):
    """A state to write over the version that it carries; only the changed fields, named by `fields`, are written.

    A terminal status, with `status` among the fields, ends the run. `check_in_ms` is when to look after an open run
    again, -1 to leave that as it is. `log` is a line for the run's log.
    """

    state: ChainState
    fields: Collection[str]
    check_in_ms: int = -1
    log: LogText | None = None

    @property
    def ending(self) -> CycleStatus | None:
        """The terminal status with which the update ends the run, or None."""
        return self.state.status if STATUS in self.fields and is_terminal(self.state.status) else None
