"""Flows on record, and the changes that may be asked of the record."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.server.schedules.schedule import Span

DEFAULT_USER = "default"
"""The owner of a flow unless the caller names one."""
REMEMBERED_MS = 24 * 3600 * 1000
"""How long a request is remembered, by default and at most."""


class RememberedRequest(msgspec.Struct, frozen=True, gc=False):
    """A client's name for a call about a flow, which makes repeating it safe; `payload` is a digest of its arguments.

    The request is remembered for `lifetime_ms` in the flow's partition, where one script can check it together with
    everything else.
    """

    user_id: str
    flow_id: str
    request_id: str
    payload: str
    lifetime_ms: int = REMEMBERED_MS

    @property
    def name(self) -> str:
        """The part of its key that is unique to the request."""
        return f"{self.user_id}:{self.flow_id}:{self.request_id}"


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused a flow, when and why; `next_ms` is what was planned next then, in the form of `next_execution_ms`.

    A flow that paused itself had `failures` failed cycles in a row, the last of which is `failed_cycle`.
    """

    by: str
    note: str
    at_ms: int
    next_ms: int
    failures: int = 0
    failed_cycle: int = -1


@dataclass(frozen=True, slots=True)
class FlowStop:
    """Who stopped a flow, why and when."""

    by: str
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """A flow on record. Times in milliseconds since the epoch, 0 for none.

    `last_cycle` is -1 before the first cycle. `schedule_epoch` rises with each change that the trigger service must
    hear of. `anchor_ms` is the first planned time since the flow was last started, or was given another schedule while
    it ran. `config_json` is canonical Weather Syntax. `next_execution_ms` is below 0 while cycles begin on events; see
    `ScheduleDefinition.standby_ms`.
    """

    flow_id: str
    user_id: str
    status: FlowStatus
    config_json: str
    structure_json: str
    labels: tuple[tuple[str, str], ...]
    last_cycle: int
    next_execution_ms: int
    created_ms: int
    updated_ms: int
    revision: int
    digest: str
    schedule: ScheduleDefinition
    overlap: OverlapPolicy
    keep_cycles: int
    schedule_epoch: int
    anchor_ms: int
    running_cycles: int
    pause: Pause | None = None
    stop: FlowStop | None = None

    @property
    def has_trigger(self) -> bool:
        """Whether the trigger service should hold a trigger for the flow: while its schedule plans something.

        A flow that begins on events keeps its trigger while it is paused, so that events that come meanwhile are put on
        record.
        """
        if self.schedule.on is None:
            return self.status is FlowStatus.RUNNING and self.next_execution_ms != 0
        following_ms = self.pause.next_ms if self.pause else self.next_execution_ms
        return self.status in (FlowStatus.RUNNING, FlowStatus.PAUSED) and following_ms != 0

    @property
    def etag(self) -> str:
        """Changes with each new revision, even when the flow is deleted and registered again."""
        return f"{self.created_ms}-{self.revision}"


@dataclass(frozen=True, slots=True)
class FlowOutline:
    """What lists choose flows by; `size` is how many bytes the definition and its structure have together."""

    flow_id: str
    user_id: str
    status: FlowStatus
    labels: tuple[tuple[str, str], ...]
    created_ms: int
    size: int


@dataclass(frozen=True, slots=True)
class FlowRegistration:
    """A definition to put on record. An empty `user_id` keeps the owner, or is "default" for a new flow.

    `digest` covers definition and labels: registering the same digest again changes nothing. `first_ms` is the first
    planned time of a running flow under a new schedule. It is below 0 for a schedule that begins on events, and 0 for
    one that begins with the flow: its next cycle is one interval from now, or sooner. `passed` are the planned times
    that have come under the old schedule and that the new one leaves out; they are put on record unless the first of
    them has been settled meanwhile. With an `etag`, the flow is changed only if it has that etag; with `owner_only`,
    only if `user_id` owns it. `by` and `note` say who makes the revision, and why.
    """

    flow_id: str
    user_id: str
    config_json: str
    structure_json: str
    labels: tuple[tuple[str, str], ...]
    digest: str
    schedule: ScheduleDefinition
    overlap: OverlapPolicy
    keep_cycles: int
    pause_after_failures: int = 0
    first_ms: int = 0
    passed: Span | None = None
    request: RememberedRequest | None = None
    etag: str = ""
    by: str = "user"
    note: str = ""
    owner_only: bool = False

    def planned_next(self, next_execution_ms: int, now_ms: int) -> int:
        """Return the next planned time under this schedule, when the old schedule had planned `next_execution_ms`."""
        if self.first_ms:
            return self.first_ms
        anchor = now_ms + self.schedule.interval_ms
        return next_execution_ms if 0 < next_execution_ms < anchor else anchor


class RegisterOutcome(StrEnum):
    """The outcome of a registration."""

    CREATED = "created"
    CHANGED = "changed"
    SAME = "same"
    REPEATED = "repeated"
    DELETING = "deleting"
    REUSED = "reused"
    MOVED = "moved"
    NOT_FOUND = "not_found"
    NOT_OWNER = "not_owner"


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A request for another status. `allowed_from` are the statuses from which it may be reached.

    `start_at_ms` is the first planned time, 0 for now, below 0 for a flow that begins on events. Nothing is planned at
    the end of a pause if the flow's schedule was over when the pause began, or is `over` since. When a flow leaves
    `running` other than for a pause, its open runs are marked as stopping, with `by` and `reason`. `passed` are the
    planned times that went by during a pause that ends, or have come for a flow that leaves `running`; the latter are
    put on record unless the first of them has been settled meanwhile.
    """

    flow_id: str
    status: FlowStatus
    allowed_from: tuple[FlowStatus, ...]
    start_at_ms: int = 0
    by: str = "user"
    reason: str = ""
    passed: Span | None = None
    over: bool = False


class StatusOutcome(StrEnum):
    """The outcome of a request for another status."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    NOT_FOUND = "not_found"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """Answer to a StatusChange; `found` is the previous status, `stopping` are the runs marked as stopping."""

    outcome: StatusOutcome
    found: FlowStatus | None = None
    stopping: tuple[RunName, ...] = ()
