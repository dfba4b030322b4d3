"""What is to be looked after again at some time: open runs, and flows whose schedule has changed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tradewind.scheduler.domain.run_name import RunName

Member = TypeVar("Member")


@dataclass(frozen=True, slots=True)
class DueCheck(Generic[Member]):
    """The members of a partition that are due now, longest due first, and when the next is due (ms), if any."""

    due: tuple[Member, ...]
    next_ms: int | None


class OpenRuns(Protocol):
    """Runs that have begun and not ended, by the time of their next check."""

    async def check(self, partitions: Collection[int], limit: int) -> dict[int, DueCheck[RunName]]:
        """Return, for each partition, up to `limit` runs that are due for a check."""
        ...

    async def postpone(self, runs: Mapping[RunName, int]) -> None:
        """Check open runs again after the given ms; runs that have ended meanwhile are left alone."""
        ...

    async def of_flow(self, flow_id: str, limit: int) -> list[RunName]:
        """Return up to `limit` open runs of a flow."""
        ...

    async def forget(self, run: RunName) -> None:
        """Remove a run that has ended, or has no record, from the open runs; its record, if any, stays.

        A run that is running stays: the store may have lost its end since the caller read it.
        """
        ...


class Outbox(Protocol):
    """Flows whose schedule must still reach the trigger service, or that must still be removed."""

    async def check(self, partitions: Collection[int], limit: int) -> dict[int, DueCheck[str]]:
        """Return, for each partition, up to `limit` flows to try now."""
        ...

    async def settle(self, flow_id: str, schedule_epoch: int) -> bool:
        """Take a flow out if it still has this schedule epoch; False when that has changed since."""
        ...

    async def postpone(self, flow_id: str, delay_ms: int) -> None:
        """Try a flow that is in the outbox again after `delay_ms`."""
        ...

    async def add(self, flow_id: str) -> None:
        """Have a flow's schedule sent to the trigger service again, as it is on record."""
        ...
