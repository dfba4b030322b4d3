"""The replies of the Lua scripts, and their conversion to the types of the ports."""

from msgspec import Struct

from tradewind.trigger.domain.claim import DueTrigger
from tradewind.trigger.domain.event import Event
from tradewind.trigger.domain.trigger import Trigger, TriggerStatus
from tradewind.trigger.ports.claims import Claims, DeadLetter, Heads, Survey
from tradewind.trigger.ports.queues import Counts
from tradewind.trigger.ports.triggers import Page, Position
from tradewind.trigger.stores.schedule_codec import decode


class Record(Struct, array_like=True):
    """A trigger; the fields are in the order of `reply` in record.lua."""

    id: str
    partition_key: str
    interval_ms: int
    anchor_ms: int
    payload_json: str
    epoch: int
    status: TriggerStatus
    planned_ms: int
    failures: int
    error: str
    revision: int
    created_at_ms: int
    spec: str
    fired: int
    paused: bool
    pause_note: str
    pending: int
    dropped: int
    event: str
    event_id: str

    def trigger(self) -> Trigger:
        return Trigger(
            self.id,
            self.partition_key,
            decode(self.interval_ms, self.anchor_ms, self.spec),
            self.payload_json,
            self.epoch,
            self.status,
            self.planned_ms,
            self.failures,
            self.error,
            self.revision,
            self.created_at_ms,
            self.fired,
            self.paused,
            self.pause_note,
            self.pending,
            self.dropped,
            Event(self.event_id, self.event, self.payload_json) if self.event_id else None,
        )


class SaveReply(Struct):
    known: int | None = None
    full: str | None = None
    trigger: Record | None = None


class RemoveReply(Struct):
    known: int | None = None
    removed: bool = False


class PageReply(Struct):
    triggers: list[Record]
    size: int
    more: bool
    id: str | None = None
    score: int | None = None

    def page(self) -> Page:
        end = Position(self.score, self.id) if self.id is not None and self.score is not None else None
        return Page(tuple(record.trigger() for record in self.triggers), self.size, end, self.more)


class SurveyReply(Struct):
    now_us: int
    due: int | None = None
    lapse: int | None = None
    lead: int | None = None

    def survey(self) -> Survey:
        return Survey(Heads(self.due, self.lapse), self.now_us, self.lead)


class SubscribeReply(Struct):
    known: int | None = None
    survey: SurveyReply | None = None

    def answer(self) -> Survey | int:
        return self.survey.survey() if self.survey else self.known or 0


class DeadReply(Struct, array_like=True):
    id: str
    failures: int
    error: str

    def letter(self) -> DeadLetter:
        return DeadLetter(self.id, self.failures, self.error)


class ClaimReply(Struct, array_like=True):
    record: Record
    token: str
    parent: Record | None = None


class ClaimsReply(Struct):
    ended: bool = False
    claims: list[ClaimReply] = []
    deadline: int = 0
    survey: SurveyReply | None = None
    dead: list[DeadReply] = []
    orphans: list[str] = []

    def answer(self, lease_ms: int) -> Claims:
        return Claims(
            self.survey.survey() if self.survey else None,
            tuple(
                DueTrigger(
                    claim.record.trigger(),
                    claim.token,
                    self.deadline,
                    self.deadline - lease_ms,
                    claim.parent.trigger() if claim.parent else None,
                )
                for claim in self.claims
            ),
            tuple(dead.letter() for dead in self.dead),
            tuple(self.orphans),
        )


class SettleReply(Struct):
    lost: list[str]
    due: int | None = None
    lapse: int | None = None
    dead: list[DeadReply] = []


class SweepReply(Struct):
    seen: int
    kept: int
    orphans: list[str] = []
    mended: list[str] = []


class ExamineReply(Struct):
    seen: int
    findings: list[tuple[str, str, str, bool]]


class CountsReply(Struct):
    scheduled: int
    claimed: int
    dead: int
    triggers: int
    orphans: int
    now: int
    first: int | None = None

    def counts(self) -> Counts:
        return Counts(self.scheduled, self.claimed, self.dead, self.triggers, self.orphans, self.first, self.now)
