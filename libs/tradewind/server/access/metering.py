"""Counting the calls of users where a setting limits them; where none does, nothing is counted and nobody is asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Protocol

from tradewind.server.access.authority import Reservation


class Meter(Protocol):
    """Counts calls of the caller to an endpoint."""

    async def take(self, endpoint: str, calls: int) -> Reservation | None:
        """Count calls; return what is reserved of a daily quota, None for nothing. Raises Exhausted, Unavailable."""
        ...

    async def give_back(self, endpoint: str, reserved: Reservation, calls: int) -> None:
        """Take calls off the quota again, if that can be done now."""
        ...


_meter: ContextVar[Meter | None] = ContextVar("tradewind_meter", default=None)


def set_meter(meter: Meter) -> None:
    """Say what counts the calls within this context, such as those that come over a stream."""
    _meter.set(meter)


class Counted:
    """Calls that were counted, and count for a daily quota unless they are given back."""

    def __init__(self, endpoint: str, calls: int, meter: Meter | None, reserved: Reservation | None) -> None:
        self._endpoint = endpoint
        self._calls = calls
        self._meter = meter
        self._reserved = reserved

    async def refund(self, calls: int | None = None) -> None:
        """Give back as many of the calls as were refused, None for all that are left."""
        back = self._calls if calls is None else min(calls, self._calls)
        self._calls -= back
        if self._meter is not None and self._reserved is not None and back:
            await self._meter.give_back(self._endpoint, self._reserved, back)


@asynccontextmanager
async def counted_calls(endpoint: str, calls: int = 1) -> AsyncIterator[Counted]:
    """Count calls, such as those over a stream or many in one call, as if each were a call of its own.

    What then raises an error was refused, and its quota is given back; what is cancelled may have been done. Raises
    Exhausted, with the time until they would be admitted, and Unavailable.
    """
    meter = _meter.get()
    counted = Counted(endpoint, calls, meter, await meter.take(endpoint, calls) if meter is not None else None)
    try:
        yield counted
    except Exception:
        await counted.refund()
        raise
