"""Cycles that run for nodes of other flows: the messages from and to the node task manager about those nodes."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.submission import ComponentEvent, OpenComponentEvent

FAILED = "SUB_FLOW_FAILED"
TOO_LARGE = "OUTPUT_TOO_LARGE"
INPUT_TOO_LARGE = "INPUT_TOO_LARGE"
MAX_OUTPUT_BYTES = 1024 * 1024


class SubFlowEvent(NamedTuple):
    """A node waits for a cycle to begin; or nobody waits any longer for the run `abandoned`. `node` is as in Parent."""

    run: RunName
    run_id: str
    user_id: str
    node: str
    abandoned: RunName | None
    partition: int
    shard: int
    event_id: str


Event: TypeAlias = ComponentEvent | SubFlowEvent | OpenComponentEvent
"""An event of a run, from the node task manager."""


@dataclass(frozen=True, slots=True)
class SubFlowWait:
    """A node of a run that waits for a cycle of `flow_id`; `child` is the cycle's run, None while it is not known.

    `inputs_json` is set if it was asked for, unless its size, `input_bytes`, is too large.
    """

    node: str
    run_id: str
    attempt: int
    flow_id: str
    child: RunName | None = None
    inputs_json: str = ""
    input_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SubFlowReport:
    """The state of `child` (None when no cycle could begin), for a node of `user_id`.

    The child has begun; or it has completed, and the node emits `output_json`; or, with an `error_code`, the node's
    attempt fails, with `final` for good.
    """

    parent: Parent
    user_id: str
    child: RunName | None
    output_json: str = ""
    error_code: str = ""
    error: str = ""
    final: bool = False


def failure_message(state: ChainState) -> str:
    """Return a text that says how a cycle ended that did not complete."""
    name = state.name
    why = f": {state.reason}" if state.reason else ""
    return f'cycle {name.cycle} of flow "{name.flow_id}" ended as {state.status.value}{why}'
