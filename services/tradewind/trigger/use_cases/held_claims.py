"""The claims that a receiver holds, limited by its credits."""

import math
from collections.abc import Iterable

from tradewind.trigger.domain.claim import DueTrigger, Token
from tradewind.trigger.domain.trigger import Trigger


class HeldClaims:
    """Tokens and their deadlines in local microseconds; a trigger's new claim replaces the previous one."""

    def __init__(self, credits: int) -> None:
        self._credits = credits
        self._deadlines: dict[Token, int] = {}
        self._unplanned: dict[Token, Trigger] = {}
        self._by_trigger: dict[tuple[int, str], Token] = {}
        self._look_us = math.inf
        """No held claim lapses before this. Finding out which lapses first takes a look at all of them."""

    def add(self, due: Iterable[DueTrigger], offset_us: int) -> None:
        """Hold claims that a store whose clock is `offset_us` ahead has just made."""
        for each in due:
            token = token_of(each)
            before = self._by_trigger.get((token.partition, token.trigger_id))
            if before is not None:
                self.drop(before)
            self._by_trigger[token.partition, token.trigger_id] = token
            self._set_deadline(token, each.deadline_ms * 1000 - offset_us)
            if each.trigger.schedule.needs_next:
                self._unplanned[token] = each.trigger

    def drop(self, token: Token) -> None:
        """Stop holding a claim; do nothing if it is not held."""
        if self._deadlines.pop(token, None) is not None:
            del self._by_trigger[token.partition, token.trigger_id]
            self._unplanned.pop(token, None)

    def holds(self, token: Token) -> bool:
        """Say whether a claim is held."""
        return token in self._deadlines

    def unplanned(self, token: Token) -> Trigger | None:
        """Return the trigger of a held claim whose next planned time the store cannot compute."""
        return self._unplanned.get(token)

    def extend(self, token: Token, deadline_us: int) -> None:
        """Move the deadline of a claim, if it is held."""
        if token in self._deadlines:
            self._set_deadline(token, deadline_us)

    def room(self, now_us: int) -> int:
        """Return how many more triggers may be claimed; lapsed claims take no room."""
        if len(self._deadlines) >= self._credits and now_us >= self._look_us:
            for token in [token for token, deadline_us in self._deadlines.items() if deadline_us <= now_us]:
                self.drop(token)
            self._look_us = min(self._deadlines.values(), default=math.inf)
        return max(0, self._credits - len(self._deadlines))

    def next_look_us(self) -> float:
        """Return when to ask for room again if there is none: when the first held claim lapses, or earlier."""
        return self._look_us

    def _set_deadline(self, token: Token, deadline_us: int) -> None:
        self._deadlines[token] = deadline_us
        self._look_us = min(self._look_us, deadline_us)

    def pop(self, partition: int | None = None) -> list[Token]:
        """Stop holding the claims of a partition, or all, and return their tokens."""
        tokens = [token for token in self._deadlines if partition in (None, token.partition)]
        for token in tokens:
            self.drop(token)
        return tokens


def token_of(due: DueTrigger) -> Token:
    """Return the token of a claim that a store made."""
    token = Token.parse(due.token)
    if token is None:
        raise ValueError(f"the store returned an invalid token: {due.token}")
    return token
