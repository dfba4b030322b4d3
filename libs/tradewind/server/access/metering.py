"""Counting the calls of users where a setting limits them; where none does, nothing is counted and nobody is asked."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol

from tradewind.server.access.identity import current_identity
from tradewind.server.faults import Exhausted
from tradewind.server.rates import Rate


class Meter(Protocol):
    """Counts calls of the caller to an endpoint. Raises Exhausted, Unavailable."""

    async def __call__(self, endpoint: str, calls: int, /) -> None: ...


_meter: ContextVar[Meter | None] = ContextVar("tradewind_meter", default=None)


def set_meter(meter: Meter) -> None:
    """Say what counts the calls within this context, such as those that come over a stream."""
    _meter.set(meter)


async def count_calls(endpoint: str, calls: int = 1) -> None:
    """Count calls that came over a stream or many in one call, as if each were a call of its own.

    Raises Exhausted, with the time until they would be admitted.
    """
    meter = _meter.get()
    if meter is not None:
        await meter(endpoint, calls)


def rates_of(text: str) -> Mapping[str, Rate]:
    """Read `METHOD=COUNT/UNIT,...`. Raises ValueError."""
    rates = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        method, separator, rate = part.partition("=")
        if not separator or not method.strip():
            raise ValueError(f'"{part}" is no limit; write METHOD=COUNT/UNIT, such as RunFlow=60/m')
        rates[method.strip()] = Rate.parse(rate.strip())
    return rates


def too_often(endpoint: str, rate: Rate, retry_after_s: float) -> Exhausted:
    """Return the refusal of a call beyond a rate."""
    identity = current_identity()
    return Exhausted(
        "RATE_LIMITED",
        f"{endpoint} may be called {rate} by each user: come back in {retry_after_s:.3g} s",
        retry_after_s,
        {"endpoint": endpoint, "limit": str(rate), "user_id": identity.user_id if identity else ""},
    )
