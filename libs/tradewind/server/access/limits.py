"""How often users may call: rates and daily quotas by method from the settings, counted by the authority."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import structlog

from tradewind.server.access.authority import Authority, Reservation
from tradewind.server.access.identity import Identity, current_identity
from tradewind.server.durations import rounded_up
from tradewind.server.faults import Exhausted, InvalidInput, Unavailable, Violation
from tradewind.server.rates import MAX_COUNT, Rate
from tradewind.server.settings import parts_of

_Limit = TypeVar("_Limit")

_log = structlog.get_logger(__name__)


class Limits:
    """Implements Meter; `passes_in_outage` says whether a method passes while the authority cannot be asked."""

    def __init__(
        self,
        authority: Authority,
        rates: Mapping[str, Rate],
        quotas: Mapping[str, int],
        passes_in_outage: Callable[[str], bool],
    ) -> None:
        self._authority = authority
        self._rates = dict(rates)
        self._quotas = dict(quotas)
        self._passes_in_outage = passes_in_outage

    def __bool__(self) -> bool:
        return bool(self._rates or self._quotas)

    async def count(self, endpoint: str, calls: int) -> Reservation | None:
        identity = current_identity()
        if identity is None:
            return None
        quota, rate = self._quotas.get(endpoint), self._rates.get(endpoint)
        _refuse_too_many(endpoint, calls, quota, rate)
        if quota is not None and calls:
            return await self._reserve(identity, endpoint, quota, rate, calls)
        if rate is not None:
            await self._admit(identity, endpoint, rate, calls)
        return None

    async def give_back(self, endpoint: str, reserved: Reservation, calls: int) -> None:
        identity = current_identity()
        assert identity is not None, "every reservation is for somebody"
        try:
            await self._authority.refund(identity.user_id, endpoint, reserved.date, calls)
        except Unavailable:
            _log.warning("quota_not_refunded", user_id=identity.user_id, endpoint=endpoint, calls=calls)

    async def _reserve(
        self, identity: Identity, endpoint: str, quota: int, rate: Rate | None, calls: int
    ) -> Reservation | None:
        try:
            reserved = await self._authority.reserve(identity.user_id, endpoint, quota, calls, rate)
        except Unavailable:
            if self._passes_in_outage(endpoint):
                return None
            raise
        if reserved.rate_limited and rate is not None:
            raise _rate_limited(identity, endpoint, rate, reserved.retry_after_s)
        if reserved.retry_after_s:
            raise _quota_exceeded(identity, endpoint, quota, reserved)
        return reserved

    async def _admit(self, identity: Identity, endpoint: str, rate: Rate, calls: int) -> None:
        try:
            wait_s = await self._authority.admit(identity.user_id, endpoint, rate, calls)
        except Unavailable:
            if self._passes_in_outage(endpoint):
                return
            raise
        if wait_s:
            raise _rate_limited(identity, endpoint, rate, wait_s)


def rates_of(text: str) -> Mapping[str, Rate]:
    """Read `METHOD=COUNT/UNIT,...`. Raises ValueError."""
    return _limits_of(text, Rate.parse, "METHOD=COUNT/UNIT, such as RunFlow=60/m")


def quotas_of(text: str) -> Mapping[str, int]:
    """Read `METHOD=COUNT,...`. Raises ValueError."""
    return _limits_of(text, _count, "METHOD=COUNT, such as SubmitTask=1000")


def _limits_of(text: str, parse: Callable[[str], _Limit], form: str) -> Mapping[str, _Limit]:
    limits: dict[str, _Limit] = {}
    for part in parts_of(text):
        method, separator, limit = part.partition("=")
        if not separator or not method.strip():
            raise ValueError(f'"{part}" is not a limit; write {form}')
        if method.strip() in limits:
            raise ValueError(f"{method.strip()} has two limits: leave one of them out")
        limits[method.strip()] = parse(limit.strip())
    return limits


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= MAX_COUNT):
        raise ValueError(f'"{text}" is not a number of calls; use 1 to {MAX_COUNT}')
    return int(text)


def _refuse_too_many(endpoint: str, calls: int, quota: int | None, rate: Rate | None) -> None:
    """Refuse more calls in one request than are ever admitted together: trying again would not help."""
    limits = [(rate.count, str(rate))] if rate is not None else []
    if quota is not None:
        limits.append((quota, f"{quota} times a day"))
    most, limit = min(limits, default=(calls, ""))
    if calls > most:
        message = f"{calls} calls of {endpoint} at once are never admitted, each user may call it at most {limit}: "
        raise InvalidInput([Violation("items", f"{message}send at most {most} together")])


def _rate_limited(identity: Identity, endpoint: str, rate: Rate, retry_after_s: float) -> Exhausted:
    return Exhausted(
        "RATE_LIMITED",
        f"each user may call {endpoint} at most {rate}: try again in {rounded_up(retry_after_s)}",
        retry_after_s,
        {"endpoint": endpoint, "limit": str(rate), "user_id": identity.user_id},
    )


def _quota_exceeded(identity: Identity, endpoint: str, quota: int, reserved: Reservation) -> Exhausted:
    return Exhausted(
        "QUOTA_EXCEEDED",
        f"each user may call {endpoint} {quota} times a day, and not enough calls are left for {reserved.date} "
        f"({reserved.time_zone}): the next day begins in {rounded_up(reserved.retry_after_s)}",
        reserved.retry_after_s,
        {
            "endpoint": endpoint,
            "quota": str(quota),
            "date": reserved.date,
            "time_zone": reserved.time_zone,
            "user_id": identity.user_id,
        },
    )
