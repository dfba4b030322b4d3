"""The port for leasing due triggers to receivers, and for their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tradewind.trigger.domain.claim import Ack, DueTrigger, Extension, Nack, Subscription, Token
from tradewind.trigger.domain.lead import NO_LEAD, Lead


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

    It is None as well while the partition is not `readable`; the subscription then goes on.
    `orphans` are ids of index entries without a trigger, which were removed.
    """

    survey: Survey | None
    due: tuple[DueTrigger, ...] = ()
    dead: tuple[DeadLetter, ...] = ()
    orphans: tuple[str, ...] = ()
    readable: bool = True


@dataclass(frozen=True, slots=True)
class Settlement:
    """The result of answering claims: the tokens of void claims, and the new heads of each partition concerned.

    Claims of partitions that cannot be read stay as they are, and are not mentioned.
    """

    lost: frozenset[str]
    heads: Mapping[int, Heads]
    dead: tuple[DeadLetter, ...] = ()


class ClaimStore(Protocol):
    """Leases due triggers to receivers.

    A partition whose indexes or receiver somebody has replaced by hand, so that they cannot be read, is logged and
    changes nothing; the others are as ever.

    A claim ends when it is acknowledged, refused or given back, when its trigger is removed or rescheduled, or when a
    claim order finds it lapsed. From then on it is void: answers that carry its token change nothing, and the token is
    listed as lost.
    """

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> Sequence[Survey | int | None]:
        """Make each session the receiver of its partition.

        It replaces a receiver with a lower or the same epoch; a SHARED one replaces nobody. The same epoch is the same
        receiver, over another stream: what it had claimed over the one before is due again, as after `give_back`,
        because whoever served that stream may have died. Claims beyond REAP_LIMIT can still be answered, but lapse
        within FORMER_LEASE_MS; so do those of a receiver with a lower epoch, which may have died as well. Returns for
        each the partition's survey, or the higher epoch that holds the partition, where nothing then changed, or None
        for a partition that cannot be read.
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
        """Return when a trigger is next due in each partition, and the survey of one partition, in one round trip.

        A partition that cannot be read is left out; in a survey, it has nothing due, or nothing claimed.
        """
        ...
