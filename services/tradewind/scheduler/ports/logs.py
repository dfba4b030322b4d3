"""The scheduler's log lines of cycles."""

from typing import Protocol

from tradewind.scheduler.domain.log_line import LogLine


class LogLines(Protocol):
    """The scheduler's own log lines of cycles, other than those that follow from the records of runs."""

    async def read(self, flow_id: str, cycle: int) -> list[LogLine]:
        """Return the lines of a cycle among the newest hundred, oldest first, at most 1000."""
        ...
