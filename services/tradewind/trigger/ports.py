"""What the use cases need from a store; the contract suite tests each method's docstring, sentence by sentence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tradewind.trigger.domain.claim import Ack, DueTrigger, Extension, Firing, Nack, Subscription, Token
from tradewind.trigger.domain.event import Event, Outcome
from tradewind.trigger.domain.lead import NO_LEAD, Lead
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import Trigger, TriggerDraft


@dataclass(frozen=True, slots=True)
class Position:
    """A place in an index of triggers: after the entry with this score and id."""

    score: int
    id: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a listing, of about `size` bytes; `more` says that other triggers follow after `end`."""

    triggers: tuple[Trigger, ...]
    size: int
    end: Position | None
    more: bool


@dataclass(frozen=True, slots=True)
class Heads:
    """The earliest time at which a trigger of a partition is due, and the earliest at which a claim lapses.

    Milliseconds since the epoch, None when there is none.
    """

    due_ms: int | None = None
    lapse_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """A partition's heads, and the store's time in microseconds when it read them.

    `lead_ms` is how long before its time the first due trigger would have been claimed, None without a claim order.
    """

    heads: Heads
    now_us: int
    lead_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ClaimOrder:
    """Asks for up to `limit` due triggers of a subscription's partition, leased for `lease_ms`.

    `nonce` (letters and digits, at most 32) is fresh for each order and becomes part of the tokens. With a `lead`, the
    triggers come before their time.
    """

    subscription: Subscription
    limit: int
    lease_ms: int
    nonce: str
    lead: Lead = NO_LEAD


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A trigger that has just died, and why."""

    trigger_id: str
    failures: int
    error: str


@dataclass(frozen=True, slots=True)
class Claims:
    """The answer to a claim order; `survey` is None when the subscription has ended, and then all else is empty.

    `orphans` are ids of index entries without a trigger, which were removed.
    """

    survey: Survey | None
    due: tuple[DueTrigger, ...] = ()
    dead: tuple[DeadLetter, ...] = ()
    orphans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settlement:
    """The result of answering claims: the tokens of void claims, and the new heads of each partition concerned."""

    lost: frozenset[str]
    heads: Mapping[int, Heads]
    dead: tuple[DeadLetter, ...] = ()


class TriggerStore(Protocol):
    """Stores triggers. Every change is one atomic step."""

    async def save(self, partition: int, draft: TriggerDraft) -> Trigger:
        """Create the trigger, or replace the stored one with the same id, and return it as stored.

        A new trigger is planned at its schedule's first time, or completed at once when no time is left.
        With schedule and epoch unchanged, planned time, status, failures and a claim stay as they are, and the revision
        rises only when payload or partition key changed.
        Otherwise the trigger is scheduled anew with no failures, and a claim of it becomes void. If the schedule is
        unchanged and the trigger had not completed, its planned time and its count of firings stay.
        A paused trigger stays paused unless the epoch is raised. A trigger that fires for events waits for them.
        Raises StaleEpoch when the stored trigger, or one removed under this id within the last hour, has a higher
        epoch, and QueueFull when the cap on the queue's triggers or on the event's listeners is reached.
        """
        ...

    async def remove(self, partition: int, trigger_id: str, epoch: int) -> bool:
        """Remove a trigger in any status, and return whether there was one.

        A claim of it becomes void. The epoch is remembered for the policy's time, even when there was no trigger.
        Raises StaleEpoch when a higher epoch is known.
        """
        ...

    async def find(self, partition: int, trigger_id: str) -> Trigger | None:
        """Return the trigger, or None when there is none or its retention has passed."""
        ...

    async def page_scheduled(self, partition: int, up_to_ms: int | None, after: Position | None, limit: int) -> Page:
        """Return up to `limit` scheduled triggers after `after`, earliest delivery first.

        Only those to be delivered at or before `up_to_ms` (0: the store's present time; None: all). A page ends early
        once it holds a MiB. Changes nothing.
        """
        ...

    async def page_claimed(self, partition: int, after: Position | None, limit: int) -> Page:
        """Return up to `limit` claimed triggers in order of the end of their lease, as `page_scheduled` does."""
        ...


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

    async def redrive(self, partition: int, queue: str, ids: Sequence[str]) -> Sequence[str]:
        """Make dead triggers and firings due again and reset their failures; return the ids of those that were dead."""
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
        planned times: if two events come at once, the second is planned a millisecond later.
        """
        ...

    async def firings(
        self, partition: int, queue: str, after: str, limit: int, trigger_id: str = ""
    ) -> tuple[Sequence[Firing], str]:
        """Return up to `limit` lines of the fire history and the position at which to go on, "" at the end.

        Newest first, beginning after the position `after` ("": with the newest); with `trigger_id`, those of one
        trigger. The policy says how many lines are kept.
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


class ClaimStore(Protocol):
    """Leases due triggers to receivers.

    A claim ends when it is acknowledged, refused or given back, when its trigger is removed or rescheduled, or when a
    claim order finds it lapsed. From then on it is void: answers that carry its token change nothing, and the token is
    listed as lost.
    """

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> Sequence[Survey | int]:
        """Make each session the receiver of its partition.

        It replaces a receiver with a lower or the same epoch; a SHARED one replaces nobody. Returns for each the
        partition's survey, or the higher epoch that holds the partition, where nothing then changed.
        """
        ...

    async def claim_due(self, orders: Sequence[ClaimOrder]) -> Sequence[Claims]:
        """Lease due triggers, oldest first, and return an answer for each order.

        No trigger is leased twice at a time. Each claim has a token of its own and a higher attempt than the trigger's
        previous claim. An answer ends early once it holds a MiB. An order of a session that is not the receiver gets
        nothing; a session with a higher epoch than known becomes the receiver.
        Lapsed claims are taken back first. Each counts as a failure: after the first in a row the trigger is due again
        at once, after later ones with the backoff of the previous failure; with the last permitted failure it is dead.
        """
        ...

    async def ack(self, acks: Sequence[Ack], session: str) -> Settlement:
        """End claims that were handled.

        A trigger that repeats is planned anew, with no failures: at the ack's own time if that is after the planned
        one, else, for an interval, at the first time on its grid after now. Any other trigger is completed. So is one
        that has fired as often as it may, whose next time is past its end, or whose schedule needs the ack's time and
        got none.
        """
        ...

    async def nack(self, nacks: Sequence[Nack], session: str) -> Settlement:
        """End claims that could not be handled.

        Each counts as a failure unless it is postponed. The trigger is due again, with its planned time unchanged,
        after the nack's delay or the policy's backoff; with the last permitted failure it is dead.
        """
        ...

    async def extend(self, extensions: Sequence[Extension]) -> Settlement:
        """Let each claim lapse its extension's time from now."""
        ...

    async def give_back(self, tokens: Sequence[Token], session: str) -> Settlement:
        """End claims as if they had never been made: triggers are due again as planned, and no failure is counted."""
        ...

    async def withdraw(self, orders: Sequence[ClaimOrder]) -> None:
        """End every claim made for these orders, as `give_back` does: without an answer nobody knows the tokens.

        Claims of other orders stay as they are. An order that the store carries out only later is not withdrawn.
        """
        ...

    async def poll(self, partitions: Sequence[int], survey: int) -> tuple[Mapping[int, int | None], Survey]:
        """Return when a trigger is next due in each partition, and the survey of one partition, in one round trip."""
        ...


class TriggersOfQueue(TriggerStore, ClaimStore, Protocol):
    """The triggers of a queue, or of the flows, and the claims on them."""


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
    withdrawal, or an answer from a session that is not the partition's receiver; NewReceiver with each subscription;
    and NewListener when a save makes a trigger listen to an event that it did not listen to before.
    """

    async def listen(self, on_wake: Callable[[Wake], None], on_gap: Callable[[], None]) -> Callable[[], None]:
        """Call `on_wake` for each wake of any partition from now on, and `on_gap` when some may have been lost.

        Returns a function that ends this.
        """
        ...


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of the trigger service; `of_queue` returns that of a queue, or for "" that of the flows."""

    of_queue: Callable[[str], TriggersOfQueue]
    queues: QueueStore
    wakes: WakeChannel
