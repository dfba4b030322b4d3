"""Claims: a due trigger is leased to one receiver until a deadline, under a token that fences off late answers."""

import re
from dataclasses import dataclass, field, replace

from tradewind.trigger.domain.trigger import Trigger

_TOKEN = re.compile(
    r"([0-9]|1[0-5]):([A-Za-z0-9][A-Za-z0-9._-]{0,127}(?::[0-9a-f]{20})?):([1-9][0-9]{0,15}):([A-Za-z0-9]{1,32})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Token:
    """Names a claim: `<partition>:<trigger or firing>:<attempt>:<nonce>`. Useless once the claim is void."""

    partition: int
    trigger_id: str
    text: str

    @classmethod
    def parse(cls, text: str) -> "Token | None":
        """Return the token in `text`, or None when no claim can ever have had it."""
        match = _TOKEN.fullmatch(text)
        return cls(int(match.group(1)), match.group(2), text) if match else None


@dataclass(frozen=True, slots=True)
class DueTrigger:
    """A trigger whose planned time has come, leased at `delivered_ms` under `token` until `deadline_ms`.

    The planned time that is due is `trigger.planned_ms`.
    """

    trigger: Trigger
    token: str
    deadline_ms: int
    delivered_ms: int
    parent: Trigger | None = None
    """For one firing for an event: the trigger that it belongs to."""
    traceparent: str = ""
    """The trace context for the work that this delivery begins."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Says that a due trigger was handled; with `finished` it fires no more.

    `next_ms` is the next planned time of a trigger that repeats. If it is unset, or not after the time that was due,
    the next time of an interval is computed on its grid.
    """

    token: Token
    next_ms: int | None = None
    finished: bool = False

    def with_next_time(self, trigger: Trigger, now_ms: int) -> "Ack":
        """Return it with the next planned time of its trigger, unless it has a valid one or the store computes it."""
        if self.finished or not trigger.schedule.needs_next:
            return self
        if self.next_ms is not None and self.next_ms > trigger.planned_ms:
            return self
        return replace(self, next_ms=trigger.schedule.following(trigger.planned_ms, now_ms))


@dataclass(frozen=True, slots=True)
class Nack:
    """Says that a due trigger was not handled: deliver it again after `retry_after_ms`, or the backoff when None.

    With `postponed` this does not count as a failure.
    """

    token: Token
    retry_after_ms: int | None = None
    error: str = ""
    postponed: bool = False


@dataclass(frozen=True, slots=True)
class Extension:
    """Asks for more time: the lease ends `lease_ms` from now."""

    token: Token
    lease_ms: int


SHARED = -1
"""The epoch of subscriptions that share a queue."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A receiver's hold on a partition: the owner's `epoch`, and the `session` of the stream that subscribed.

    With the epoch SHARED, any number of receivers receive from a queue side by side.
    """

    partition: int
    epoch: int
    session: str


@dataclass(frozen=True, slots=True)
class Firing:
    """One line of the fire history, which says how a planned time ended: `fired`, or `dead` with its `error`.

    `trigger_id` is the id of the firing when there was an event; `position` is the line's place in the history.
    """

    trigger_id: str
    planned_ms: int
    attempt: int
    outcome: str
    at_ms: int
    error: str = ""
    event_id: str = ""
    position: str = field(default="", compare=False)
