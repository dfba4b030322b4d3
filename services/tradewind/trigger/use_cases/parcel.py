"""What a receiver asks for when it opens its stream, and what is sent to it at once."""

from dataclasses import dataclass

from tradewind.trigger.domain.claim import DueTrigger


@dataclass(frozen=True, slots=True)
class Opening:
    """What a receiver asks for when it opens its stream: triggers of a queue, or of the flows when `queue` is "".

    It holds at most `credits` unacknowledged ones. They come up to `lead_ms` before their time. New listeners to the
    events `listeners_of` are reported to it.
    """

    credits: int
    queue: str = ""
    lead_ms: int = 0
    listeners_of: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is sent to a receiver at once.

    Due triggers, tokens of void claims, partitions that it no longer receives, and events that a trigger has begun to
    listen to.
    """

    due: tuple[DueTrigger, ...] = ()
    lost: tuple[str, ...] = ()
    ended: tuple[int, ...] = ()
    listened: tuple[str, ...] = ()
