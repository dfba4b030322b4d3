"""Tells gates who calls, and whether they may."""

import asyncio

from tradewind.access.ports import Authorized, Refusal, Stores
from tradewind.access.use_cases.daily_quotas import DailyQuotas
from tradewind.access.use_cases.listeners import Listeners
from tradewind.server.access.authority import Changed, Reservation
from tradewind.server.access.identity import Identity
from tradewind.server.access.refusals import refusal_for
from tradewind.server.access.tokens import is_digest
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.rates import Rate

REFUSAL_REASONS = {Refusal.UNKNOWN: "TOKEN_INVALID", Refusal.EXPIRED: "TOKEN_EXPIRED"}


class LocalAuthority:
    """Implements Authority for the access service itself, and for services in the same process."""

    def __init__(self, stores: Stores, listeners: Listeners, quotas: DailyQuotas) -> None:
        self._stores = stores
        self._quotas = quotas
        self._listeners = listeners

    async def authorize(self, digest: str) -> Identity:
        found = await self.find(digest)
        if isinstance(found, Refusal):
            raise refusal_for(REFUSAL_REASONS[found])
        return Identity(found.user_id, found.role, found.session_id, digest)

    async def find(self, digest: str) -> Authorized | Refusal:
        """Return the user a token belongs to, or why it is not valid."""
        if not is_digest(digest):
            raise InvalidInput(
                [Violation("digest", "must be 66 hexadecimal digits, of which the first two name a partition")]
            )
        return await self._stores.sessions.authorize(digest)

    async def admit(self, user_id: str, endpoint: str, rate: Rate, calls: int) -> float:
        return await self._stores.calls.admit(user_id, endpoint, rate, calls) / 1000

    async def reserve(
        self, user_id: str, endpoint: str, quota: int, calls: int, rate: Rate | None = None
    ) -> Reservation:
        return await self._quotas.reserve(user_id, endpoint, quota, calls, rate)

    async def refund(self, user_id: str, endpoint: str, date: str, calls: int) -> None:
        await self._quotas.refund(user_id, endpoint, date, calls)

    async def watch(self, changed: Changed) -> None:
        with self._listeners.listening(changed):
            await asyncio.Event().wait()

    async def close(self) -> None:
        """Do nothing: the stores belong to the service."""
