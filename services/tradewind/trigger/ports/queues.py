"""The port for everything that can be done with triggers apart from delivering them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tradewind.trigger.domain.claim import Firing
from tradewind.trigger.domain.event import Event, Outcome
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import Trigger
from tradewind.trigger.ports.triggers import Page, Position


@dataclass(frozen=True, slots=True)
class Listener:
    """A trigger that listens to events of a name, and its schedule with the filter."""

    partition: int
    queue: str
    trigger_id: str
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class FiringOrder:
    """Asks for one firing of a trigger whose window begins at `start_ms` (0: no bound)."""

    partition: int
    queue: str
    trigger_id: str
    start_ms: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """How many triggers of a queue, or of the flows in a partition, have each status.

    `triggers` is 0 for flows, whose triggers no index lists; `orphans` counts all index entries without a trigger that
    were ever found; `first_ms` is when a trigger is next to be delivered, `now_ms` the store's time.
    """

    scheduled: int
    claimed: int
    dead: int
    triggers: int
    orphans: int
    first_ms: int | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class Swept:
    """What sweeping a part of an index found: entries without a trigger, and triggers without an entry.

    `next_rank` is the rank at which to go on, None at the end.
    """

    orphans: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()
    next_rank: int | None = None


class QueueStore(Protocol):
    """Everything that can be done with triggers apart from delivering them. The empty queue is that of the flows."""

    async def page_all(self, partition: int, queue: str, after: Position | None, limit: int) -> Page:
        """Return up to `limit` triggers of a queue in any status, in order of creation; none for the flows."""
        ...

    async def page_dead(self, partition: int, queue: str, after: Position | None, limit: int) -> Page:
        """Return up to `limit` dead triggers and firings, in the order in which they died."""
        ...

    async def pause(self, partition: int, queue: str, trigger_id: str, note: str) -> Trigger | None:
        """Keep a trigger from firing until it is resumed, and return it; None when there is none.

        A running claim may still be acknowledged. Events that come meanwhile make no firing. A trigger that has ended
        is not changed.
        """
        ...

    async def resume(
        self, partition: int, queue: str, trigger_id: str, seen_ms: int, planned_ms: int | None
    ) -> Trigger | None:
        """Let a paused trigger fire again, and return it; None when there is none.

        If its planned time is still `seen_ms`, it becomes `planned_ms`; a `planned_ms` of None completes the trigger. A
        trigger that is not paused stays as it is.
        """
        ...

    async def redrive(self, partition: int, queue: str, id: str) -> bool:
        """Make a dead trigger or firing due again and reset its failures; return whether it was dead."""
        ...

    async def listeners(self, name: str) -> Sequence[Listener]:
        """Return every trigger that listens to events of a name, in any queue."""
        ...

    async def count_listeners(self, name: str) -> int:
        """Return how many triggers listen to events of a name."""
        ...

    async def fire(self, orders: Sequence[FiringOrder], event: Event, *, by_hand: bool = False) -> Sequence[Outcome]:
        """Make one firing of each trigger for the event, and return the outcome of each.

        The same event fires a trigger only once while the firing is kept, and for the policy's time after it was
        acknowledged. Only a trigger that listens to the event is fired, and only if it is not paused, is within its
        window and has firings left; with `by_hand`, any trigger is. The firings of a trigger that listens have rising
        planned times: if two events come at once, the second is planned a millisecond later. Raises Unreadable when
        the index of a trigger is of another type, after all others have been fired.
        """
        ...

    async def firings(
        self, partition: int, queue: str, after: str, limit: int, trigger_id: str = ""
    ) -> tuple[Sequence[Firing], str]:
        """Return up to `limit` lines of the fire history and the position at which to go on, "" at the end.

        Newest first, beginning after the position `after` ("": with the newest); with `trigger_id`, those of one
        trigger. The policy says how many lines are kept. Raises Unreadable when somebody has put something else in the
        place of the history; no line is added then.
        """
        ...

    async def counts(self, partition: int, queue: str) -> Counts:
        """Count the triggers of a queue, or of the flows, in a partition."""
        ...

    async def queues(self, partition: int) -> Sequence[str]:
        """Return the names of the queues that have triggers in a partition, or had some when it was last swept."""
        ...

    async def sweep(self, partition: int, queue: str, index: str, first: int) -> Swept:
        """Sweep a part of an index (`due`, `claimed`, `dead` or `all`).

        Remove entries without a trigger, and add those that a trigger of a queue lacks. Forget a queue without
        triggers.
        """
        ...
