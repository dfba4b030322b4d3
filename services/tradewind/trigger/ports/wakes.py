"""The port for notifying every replica of changes that any of them made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tradewind.trigger.domain.claim import Subscription


@dataclass(frozen=True, slots=True)
class EarlierDue:
    """A trigger in the partition, of the flows or of a queue, is due at `due_ms`, earlier than any other before."""

    partition: int
    due_ms: int
    queue: str = ""


@dataclass(frozen=True, slots=True)
class NewReceiver:
    """A session has become the receiver of the partition."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class NewListener:
    """A trigger of the partition has begun to listen to events of a name."""

    partition: int
    name: str


Wake = EarlierDue | NewReceiver | NewListener


class WakeChannel(Protocol):
    """Notifies every replica of changes that any of them made. Messages may be lost, so nobody may rely on it alone.

    A store publishes EarlierDue when a trigger becomes due earlier than any other in the partition, through a save, a
    withdrawal, or an answer from a session that is not the partition's receiver, and when a receiver of a queue finds
    claims that have lapsed and leaves something due; NewReceiver with each subscription; and NewListener when a save
    makes a trigger listen to an event that it did not listen to before.
    """

    async def listen(self, on_wake: Callable[[Wake], None], on_gap: Callable[[], None]) -> Callable[[], None]:
        """Call `on_wake` for each wake of any partition from now on, and `on_gap` when some may have been lost.

        Returns a function that ends this.
        """
        ...
