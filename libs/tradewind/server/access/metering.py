"""Counts the calls of users where a setting limits them; elsewhere nothing is counted and nobody is asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Protocol

from tradewind.server.access.authority import Reservation


class Meter(Protocol):
    """Counts the caller's calls to an endpoint."""

    async def count(self, endpoint: str, calls: int) -> Reservation | None:
        """Count calls; return what is reserved of a daily quota, or None.

        Raises Exhausted, Unavailable, and InvalidInput for more calls than are ever admitted together.
        """
        ...

    async def give_back(self, endpoint: str, reserved: Reservation, calls: int) -> None:
        """Give calls back to the quota, if that can be done now."""
        ...


_meter: ContextVar[Meter | None] = ContextVar("tradewind_meter", default=None)


def set_meter(meter: Meter) -> None:
    """Set what counts the calls within this context, such as those that come over a stream."""
    _meter.set(meter)


class CountedCalls:
    """Counted calls, which use up the daily quota unless they are given back."""

    def __init__(self, endpoint: str, calls: int, meter: Meter | None, reserved: Reservation | None) -> None:
        self._endpoint = endpoint
        self._calls = calls
        self._meter = meter
        self._reserved = reserved

    async def refund(self, calls: int | None = None) -> None:
        """Give back `calls` calls that were refused; None for all that are left."""
        refunded = self._calls if calls is None else min(calls, self._calls)
        self._calls -= refunded
        if self._meter is not None and self._reserved is not None and refunded:
            await self._meter.give_back(self._endpoint, self._reserved, refunded)


@asynccontextmanager
async def counted_calls(endpoint: str, calls: int = 1) -> AsyncIterator[CountedCalls]:
    """Count calls, such as those over a stream or many in one call, as if each were a call of its own.

    If the block raises an error, the calls count as refused and go back to the quota; if it is cancelled, they may have
    been carried out and stay counted. Raises Exhausted, with the time until they would be admitted, Unavailable, and
    InvalidInput for more calls than are ever admitted together.
    """
    meter = _meter.get()
    counted = CountedCalls(endpoint, calls, meter, await meter.count(endpoint, calls) if meter is not None else None)
    try:
        yield counted
    except Exception:
        await counted.refund()
        raise
