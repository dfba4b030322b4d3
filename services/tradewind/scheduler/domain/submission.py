"""The messages to the node task manager, and its answers and events."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from tradewind.scheduler.domain.chain_state import ChainState, ComponentEnd
from tradewind.scheduler.domain.run_name import RunName


class Submission(msgspec.Struct, frozen=True, gc=False):
    """A run to be carried out; `components` pairs the id of each component with the digest of its plan.

    The submission of a `large` one does not hold up others.
    """

    state: ChainState
    components: tuple[tuple[str, str], ...]
    large: bool = False


class SubmitOutcome(StrEnum):
    """The outcome of a submission."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    PLAN_UNKNOWN = "plan_unknown"
    RUN_CONFLICT = "run_conflict"
    REFUSED = "refused"


class SubmitAnswer(msgspec.Struct, frozen=True, gc=False):
    """Answer to a submission; `reason` is the name of an error reason, `retry_ms` when to come back."""

    outcome: SubmitOutcome
    unknown_plans: tuple[str, ...] = ()
    reason: str = ""
    retry_ms: int = 0


class ComponentEvent(msgspec.Struct, frozen=True, gc=False):
    """A component of a run has ended. `event_id` is the event's place among the events of its partition and shard.

    `outputs` pairs handles with the values that the component's only sink, `sink`, has emitted, if they are small.
    """

    run: RunName
    run_id: str
    component_id: str
    end: ComponentEnd
    partition: int
    shard: int
    event_id: str
    sink: str = ""
    outputs: Sequence[tuple[str, str]] = ()


class OpenComponentEvent(msgspec.Struct, frozen=True, gc=False):
    """The node task manager asks whether a component that is open since `begun_ms` should be."""

    run: RunName
    run_id: str
    component_id: str
    user_id: str
    begun_ms: int
    partition: int
    shard: int
    event_id: str


@dataclass(frozen=True, slots=True)
class ComponentView:
    """A component as the node task manager sees it; `end` counts the nodes that are terminal."""

    run: RunName
    run_id: str
    component_id: str
    finished: bool
    end: ComponentEnd
    withheld: bool = False


@dataclass(frozen=True, slots=True)
class StopOrder:
    """A run to be stopped, as a whole or one component of it."""

    run: RunName
    run_id: str
    user_id: str
    reason: str
    by: str
    deadline_ms: int
    component_id: str = ""
