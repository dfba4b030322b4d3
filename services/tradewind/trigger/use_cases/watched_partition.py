"""A partition as its receiver knows it: when it next needs attention, by the store's clock."""

from dataclasses import dataclass, field

from tradewind.server.store_time import StoreTime
from tradewind.trigger.domain.claim import Subscription
from tradewind.trigger.ports.claims import Heads, Survey


@dataclass(slots=True, eq=False)
class WatchedPartition:
    """The known times of a partition, None when there is none; times received during a claim are kept.

    Nothing is claimed until the store has `confirmed` the subscription; one to an `unreadable` partition is tried again
    by polls. With `recheck`, another session may have become the receiver, or the store's clock was set; a claim order
    finds out. Due triggers are claimed before their time: by `lead_ms`, or by the longest lead until the store has said
    what the lead for the first one is.
    """

    subscription: Subscription
    longest_lead_ms: int = 0
    due_ms: int | None = None
    lapse_ms: int | None = None
    confirmed: bool = False
    unreadable: bool = False
    recheck: bool = False
    lead_ms: int | None = None
    time: StoreTime = field(default_factory=StoreTime)

    def begin_claim(self) -> None:
        """Forget the times, because the claim that begins now will bring them; times received meanwhile are added."""
        self.due_ms = self.lapse_ms = self.lead_ms = None
        self.recheck = False

    def expect(self, heads: Heads) -> None:
        """Note times that are earlier than the known ones."""
        due_ms = _earlier(self.due_ms, heads.due_ms)
        if due_ms != self.due_ms:
            self.due_ms, self.lead_ms = due_ms, None
        self.lapse_ms = _earlier(self.lapse_ms, heads.lapse_ms)

    def apply_survey(self, survey: Survey, asked_us: int, answered_us: int) -> int:
        """Note a survey of the store, which was asked for and answered at these local times.

        Returns by how many microseconds the store's clock has jumped.
        """
        self.expect(survey.heads)
        if self.due_ms is not None and self.due_ms == survey.heads.due_ms:
            # Triggers that are due later than the longest lead were not counted yet.
            near = self.due_ms * 1000 <= survey.now_us + self.longest_lead_ms * 1000
            self.lead_ms = survey.lead_ms if near else None
        return self.time.observe(survey.now_us, asked_us, answered_us)

    def next_us(self) -> int | None:
        """Return the local time at which there is next something to claim, to take back or to find out."""
        if not self.confirmed:
            return None
        if self.recheck:
            return 0
        lead_ms = self.longest_lead_ms if self.lead_ms is None else self.lead_ms
        claim_ms = None if self.due_ms is None else self.due_ms - lead_ms
        next_ms = _earlier(claim_ms, self.lapse_ms)
        return None if next_ms is None else next_ms * 1000 - self.time.offset_us


def _earlier(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
