"""Returns claims to the store that their receiver no longer wants, or of which nobody knows."""

from collections.abc import Awaitable, Callable, Sequence

import structlog

from tradewind.trigger.domain.claim import Token
from tradewind.trigger.ports.claims import ClaimOrder, ClaimStore, Settlement
from tradewind.trigger.ports.wakes import EarlierDue
from tradewind.trigger.use_cases.receivers import Receivers

_RETRY_S = 1.0
"""How long after a try the next one begins; a withdrawal is repeated even if the store has answered."""

_log = structlog.get_logger(__name__)


class ReturnClaims:
    """Returns the claims of one receiver's `session`; the others of this process are notified of what is due again."""

    def __init__(self, store: ClaimStore, receivers: Receivers, session: str, lease_ms: int) -> None:
        self._store = store
        self._receivers = receivers
        self._session = session
        self._lease_ms = lease_ms

    async def give_back(self, tokens: Sequence[Token]) -> None:
        """Give claims back as soon as the store lets it, for as long as their leases last."""
        if not tokens:
            return

        async def give_back() -> None:
            self._notify(await self._store.give_back(tokens, self._session))

        if error := await self._repeat(give_back, answers=1):
            # Nothing is lost: the leases lapse, and the receiver of that time gets the triggers.
            _log.warning("claims_not_given_back", count=len(tokens), error=error)

    async def withdraw(self, orders: Sequence[ClaimOrder]) -> None:
        """Withdraw orders until the store has answered twice: when it wakes, it may see the first before the orders."""
        if error := await self._repeat(lambda: self._store.withdraw(orders), answers=2):
            # Nothing is lost: as with claims that are not given back, the leases lapse.
            partitions = [each.subscription.partition for each in orders]
            _log.warning("orders_not_withdrawn", partitions=partitions, error=error)

    async def _repeat(self, call: Callable[[], Awaitable[None]], answers: int) -> Exception | None:
        """Call the store until it has answered so often, or leases have lapsed; return the last error, if any."""
        error: Exception | None = None
        # Count tries, not seconds: with a store that hangs, a try takes longer, and leases begin only when it wakes.
        for tries_left in reversed(range(max(answers, self._lease_ms // 1000))):
            try:
                await call()
                answers, error = answers - 1, None
            except Exception as failure:
                error = failure
            if not answers or not tries_left or not await self._receivers.pause(_RETRY_S):
                break
        return error

    def _notify(self, settlement: Settlement) -> None:
        for partition, heads in settlement.heads.items():
            if heads.due_ms is not None:
                self._receivers.notify(EarlierDue(partition, heads.due_ms))
