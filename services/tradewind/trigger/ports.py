"""What the use cases need from a store: each method's contract, sentence by sentence, is the contract suite's."""

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
    """A place in an index of triggers: after the one with this score and id."""

    score: int
    id: str


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing, of about `size` bytes; `more` says that others follow after `end`."""

    triggers: tuple[Trigger, ...]
    size: int
    end: Position | None
    more: bool


@dataclass(frozen=True, slots=True)
class Heads:
    """What comes first in a partition: the earliest time something is due, and the earliest a claim lapses.

    Milliseconds since the epoch, None when there is nothing.
    """

    due_ms: int | None = None
    lapse_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """A partition's heads, and the store's time in microseconds when it looked.

    `lead_ms` is how long before its time the first of them would have been claimed, None when no claim was asked for.
    """

    heads: Heads
    now_us: int
    lead_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ClaimOrder:
    """Asks for up to `limit` due triggers of a subscription's partition, leased for `lease_ms`.

    `nonce` (letters and digits, at most 32) is fresh for each order and becomes part of the tokens. With a `lead` they
    come before their time.
    """

    subscription: Subscription
    limit: int
    lease_ms: int
    nonce: str
    lead: Lead = NO_LEAD


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A trigger that just died, and why."""

    trigger_id: str
    failures: int
    error: str


@dataclass(frozen=True, slots=True)
class Claims:
    """The answer to a claim order; `survey` is None when the subscription has ended, and then there is nothing else.

    `orphans` are ids that stood in an index without a trigger; they were taken out.
    """

    survey: Survey | None
    due: tuple[DueTrigger, ...] = ()
    dead: tuple[DeadLetter, ...] = ()
    orphans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of answers to claims: the tokens that held nothing, and each touched partition's new heads."""

    lost: frozenset[str]
    heads: Mapping[int, Heads]
    dead: tuple[DeadLetter, ...] = ()


class TriggerStore(Protocol):
    """Keeps triggers. Every change is one atomic step."""

    async def save(self, partition: int, draft: TriggerDraft) -> Trigger:
        """Create the trigger or replace the one with its id, and return it as stored.

        A new trigger is planned at its schedule's first time, and completed when nothing follows any more.
        With schedule and epoch unchanged, planned time, status, failures and a claim stay as they are, and the revision
        rises only when payload or partition key changed.
        Otherwise it is scheduled anew with no failures, a claim of it becomes void, and its planned time and how often
        it fired stay when the schedule did and it had not completed.
        A paused one stays so unless the epoch is raised. One that fires for events waits for them.
        Raises StaleEpoch when it, or the trigger removed under this id within the last hour, has a higher epoch, and
        QueueFull when the queue, or what listens to the event, has reached its cap.
        """
        ...

    async def remove(self, partition: int, trigger_id: str, epoch: int) -> bool:
        """Remove a trigger whatever its status, and say whether there was one.

        A claim of it becomes void. The epoch is remembered for the policy's time, also when there was none.
        Raises StaleEpoch when a higher epoch is known.
        """
        ...

    async def find(self, partition: int, trigger_id: str) -> Trigger | None:
        """Return the trigger, or None when there is none or its retention has passed."""
        ...

    async def page_scheduled(self, partition: int, up_to_ms: int | None, after: Position | None, limit: int) -> Page:
        """Return up to `limit` scheduled triggers, earliest delivery first, that come after `after`.

        None but those to be delivered at or before `up_to_ms` (0: the store's now; None: all). A page ends early once
        it holds a MiB. Changes nothing.
        """
        ...

    async def page_claimed(self, partition: int, after: Position | None, limit: int) -> Page:
        """Return up to `limit` claimed triggers by the end of their lease, as `page_scheduled` does."""
        ...


@dataclass(frozen=True, slots=True)
class Listener:
    """A trigger that waits for events of a name, and its schedule with the filter."""

    partition: int
    queue: str
    trigger_id: str
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class FiringOrder:
    """Asks for one firing of a trigger whose window begins at `start_ms`, 0 being no bound."""

    partition: int
    queue: str
    trigger_id: str
    start_ms: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """How many triggers of a queue, or of the flows in a partition, stand where.

    `triggers` is 0 for flows, whose triggers are in no list; `orphans` counts the index entries without a trigger that
    were ever found; `first_ms` is when something is next to be delivered, `now_ms` the store's time.
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
    """What a look through a part of an index found: entries without a trigger, and triggers without an entry.

    `following` is the rank at which to go on, None at the end.
    """

    orphans: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()
    following: int | None = None


class QueueStore(Protocol):
    """What can be done with triggers besides delivering them. The empty queue is that of the flows."""

    async def page_all(self, partition: int, queue: str, after: Position | None, limit: int) -> Page:
        """Return up to `limit` triggers of a queue by creation, whatever their status; none of the flows'."""
        ...

    async def page_dead(self, partition: int, queue: str, after: Position | None, limit: int) -> Page:
        """Return up to `limit` dead triggers and firings, those that died first before the others."""
        ...

    async def pause(self, partition: int, queue: str, trigger_id: str, note: str) -> Trigger | None:
        """Keep a trigger from firing until it is resumed, and return it; None when there is none.

        A claim that runs may be acknowledged. Events that come meanwhile make no firing. One that has ended stays so.
        """
        ...

    async def resume(
        self, partition: int, queue: str, trigger_id: str, seen_ms: int, planned_ms: int | None
    ) -> Trigger | None:
        """Let a paused trigger fire again, and return it; None when there is none.

        When its planned time is still the one that was seen, it becomes the other; None completes it. One that is not
        paused stays as it is.
        """
        ...

    async def redrive(self, partition: int, queue: str, ids: Sequence[str]) -> Sequence[str]:
        """Make dead triggers and firings due again, with no failures; return the ids of those that were dead."""
        ...

    async def listeners(self, name: str) -> Sequence[Listener]:
        """Return every trigger that listens to events of a name, in any queue."""
        ...

    async def count_listeners(self, name: str) -> int:
        """Return how many triggers listen to events of a name."""
        ...

    async def fire(self, orders: Sequence[FiringOrder], event: Event, *, by_hand: bool = False) -> Sequence[Outcome]:
        """Make one firing for the event of each trigger, and say what became of each.

        The same event fires a trigger once, as long as the firing is kept and for the policy's time after it was
        acknowledged. It goes to those only that listen to it and are neither paused nor outside their window or past
        their number of firings; by hand, to any. The planned times of the firings of one that listens rise: a moment
        after the one before where two events come at once.
        """
        ...

    async def firings(
        self, partition: int, queue: str, after: str, limit: int, trigger_id: str = ""
    ) -> tuple[Sequence[Firing], str]:
        """Return up to `limit` lines of the fire history, newest first, from behind the position `after` ("": from
        the newest), of one trigger if it is named; and the position where to go on, "" at the end. The policy says how
        many are kept."""
        ...

    async def counts(self, partition: int, queue: str) -> Counts:
        """Count."""
        ...

    async def queues(self, partition: int) -> Sequence[str]:
        """Return the names of the queues that have triggers in a partition, or had when it was last swept."""
        ...

    async def sweep(self, partition: int, queue: str, index: str, first: int) -> Swept:
        """Look through a part of an index (`due`, `claimed`, `dead` or `all`), take out what stands there without a
        trigger, and put back what a trigger of a queue misses. A queue without triggers is forgotten."""
        ...


class ClaimStore(Protocol):
    """Leases due triggers to receivers.

    A claim ends when it is acknowledged, refused or given back, when its trigger is removed or rescheduled, or when a
    claim order finds it lapsed. From then on its token holds nothing: what names it changes nothing and is listed as
    lost.
    """

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> Sequence[Survey | int]:
        """Make each session the receiver of its partition, in place of one with a lower or the same epoch; a SHARED
        one takes nobody's place.

        Answers each with the partition's survey, or with the higher epoch that holds it: then nothing changed there.
        """
        ...

    async def claim_due(self, orders: Sequence[ClaimOrder]) -> Sequence[Claims]:
        """Lease what is due, oldest first, and answer per order.

        No trigger is leased twice at a time. Each claim has a token of its own and a higher attempt than the one
        before. It ends early once it holds a MiB. An order of a session that is not the receiver gets
        nothing; one with a higher epoch than known becomes the receiver.
        Before that, lapsed claims are taken back: each counts as a failure; the first in a row is due again at once,
        later ones after the backoff of the one before; with the last permitted failure the trigger is dead.
        """
        ...

    async def ack(self, acks: Sequence[Ack], session: str) -> Settlement:
        """End claims that were handled. What repeats is planned anew, with no failures: at the ack's own time when that
        lies after the planned one, else an interval at the first time on its grid after now. What fires no more is
        completed: so is what has fired as often as it may, what is planned past its end, and a schedule that needs the
        ack's time without one.
        """
        ...

    async def nack(self, nacks: Sequence[Nack], session: str) -> Settlement:
        """End claims that could not be handled. Each is a failure: the trigger is due again, with its planned time
        unchanged, after the nack's delay or the policy's backoff; with the last permitted failure it is dead.
        """
        ...

    async def extend(self, extensions: Sequence[Extension]) -> Settlement:
        """Let claims lapse the extension's time from now."""
        ...

    async def give_back(self, tokens: Sequence[Token], session: str) -> Settlement:
        """End claims as if they had never been: due again at their planned time, no failure counted."""
        ...

    async def withdraw(self, orders: Sequence[ClaimOrder]) -> None:
        """End every claim that was made for these orders, as `give_back` does; when no answer came, nobody knows the
        tokens.

        Claims of other orders stay as they are. An order that is carried out only after this is not withdrawn.
        """
        ...

    async def look(self, partitions: Sequence[int], survey: int) -> tuple[Mapping[int, int | None], Survey]:
        """Return when something is next due in each partition, and the survey of one partition, in one round trip."""
        ...


class TriggersOfQueue(TriggerStore, ClaimStore, Protocol):
    """The triggers of a queue, or of the flows, and the claims on them."""


@dataclass(frozen=True, slots=True)
class EarlierDue:
    """Something in the partition is due at `due_ms`, earlier than anything was before: of the flows, or of a queue."""

    partition: int
    due_ms: int
    queue: str = ""


@dataclass(frozen=True, slots=True)
class NewReceiver:
    """A session has become the receiver of the partition."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class NewListener:
    """A trigger of the partition listens to events of a name, and did not before."""

    partition: int
    name: str


Wake = EarlierDue | NewReceiver | NewListener


class WakeChannel(Protocol):
    """Tells every replica what any of them changed; may lose messages, so that nobody relies on it alone.

    A store publishes EarlierDue when a save, a withdrawal, or an answer of somebody who is not the partition's
    receiver, makes something due before all else there; NewReceiver with each subscription; and NewListener when a save
    lets a trigger listen to an event that it did not listen to.
    """

    async def listen(self, hear: Callable[[Wake], None], missed: Callable[[], None]) -> Callable[[], None]:
        """Call `hear` for each wake of any partition from now on, and `missed` when some may have been lost.

        Returns what ends it.
        """
        ...
