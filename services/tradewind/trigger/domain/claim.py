"""Claims: a due trigger leased to one receiver until a deadline, named by a token that fences late answers off."""

import re
from dataclasses import dataclass, field

from tradewind.trigger.domain.trigger import Trigger

_TOKEN = re.compile(
    r"([0-9]|1[0-5]):([A-Za-z0-9][A-Za-z0-9._-]{0,127}(?::[0-9a-f]{20})?):([1-9][0-9]{0,15}):([A-Za-z0-9]{1,32})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Token:
    """`<partition>:<trigger or firing>:<attempt>:<nonce>`: says where the claim is; of no use once it is void."""

    partition: int
    trigger_id: str
    text: str

    @classmethod
    def parse(cls, text: str) -> "Token | None":
        """Return the token in `text`, or None when no claim can ever have been named so."""
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
    """The trigger that this is one firing of, for an event."""
    traceparent: str = ""
    """The trace context for what it begins."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Handled. `next_ms` is the next planned time of a trigger that repeats; unset, or not after the one that was due,
    that of an interval is computed on its grid. With `finished` the trigger fires no more."""

    token: Token
    next_ms: int | None = None
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Nack:
    """Not handled; to be delivered again after `retry_after_ms`, or by backoff when None.

    One that is `postponed` counts as no failure.
    """

    token: Token
    retry_after_ms: int | None = None
    error: str = ""
    postponed: bool = False


@dataclass(frozen=True, slots=True)
class Extension:
    """More time wanted: the lease ends `lease_ms` from now."""

    token: Token
    lease_ms: int


SHARED = -1


@dataclass(frozen=True, slots=True)
class Subscription:
    """A receiver's hold on a partition: the owner's `epoch`, and the `session` of the stream that brought it.

    With the epoch SHARED it is one of any number that receive from a queue side by side.
    """

    partition: int
    epoch: int
    session: str


@dataclass(frozen=True, slots=True)
class Firing:
    """One line of the fire history: how a planned time ended: `fired`, or `dead` with its `error`.

    `trigger_id` is that of the firing when there was an event; `position` is where the line stands in the history.
    """

    trigger_id: str
    planned_ms: int
    attempt: int
    outcome: str
    at_ms: int
    error: str = ""
    event_id: str = ""
    position: str = field(default="", compare=False)
