"""How a service is tied to the store behind its adapters."""

from typing import Protocol

from tradewind.server.clock import Clock, SystemClock


class StoreLink(Protocol):
    """The link to the store: opened when the service starts, closed when it stops."""

    @property
    def clock(self) -> Clock:
        """The clock by which the stores write times; exact once the link is open."""
        ...

    async def open(self) -> None:
        """Make sure that the stores are usable. Raises ConnectionError or UnsafeStore when they are not."""
        ...

    async def close(self) -> None:
        """Close every connection; also works if it was never opened."""
        ...

    async def not_ready(self) -> str | None:
        """Return why calls of the stores would fail now; None if they would not."""
        ...

    async def write_refusal(self) -> str:
        """Return why the stores refuse all writes now, for people; "" when they do not."""
        ...


class NoLink:
    """The link of stores in this process's own memory: nothing to open, and nothing that could be away."""

    clock: Clock = SystemClock()

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def not_ready(self) -> str | None:
        """Return None: nothing keeps calls from succeeding."""
        return None

    async def write_refusal(self) -> str:
        """Return "": all writes are taken."""
        return ""
