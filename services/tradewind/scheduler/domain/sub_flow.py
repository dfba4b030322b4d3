"""Cycles that run for nodes of other flows: what the node task manager says of those nodes, and what it is told."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.submission import ComponentEvent

FAILED = "SUB_FLOW_FAILED"
TOO_LARGE = "OUTPUT_TOO_LARGE"
INPUT_TOO_LARGE = "INPUT_TOO_LARGE"
MOST_OUTPUT_BYTES = 1024 * 1024


class SubFlowEvent(NamedTuple):
    """A node waits for a cycle to begin, or nobody waits any more for the run `abandoned`; `node` as in Parent."""

    run: RunName
    run_id: str
    user_id: str
    node: str
    abandoned: RunName | None
    partition: int
    shard: int
    event_id: str


Event: TypeAlias = ComponentEvent | SubFlowEvent
"""What the node task manager says of a run."""


@dataclass(frozen=True, slots=True)
class SubFlowWait:
    """A node of a run that waits for a cycle of `flow_id`: for the run `child`, None while none is known.

    `inputs_json` is there where it was asked for, unless its size, `input_bytes`, is too large.
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
    """What became of `child` (None when none could begin) for a node of `user_id`.

    It has begun; or it completed, and the node emits `output_json`; or with an `error_code` the node's attempt fails,
    with `final` for good.
    """

    parent: Parent
    user_id: str
    child: RunName | None
    output_json: str = ""
    error_code: str = ""
    error: str = ""
    final: bool = False


def failed(state: ChainState) -> str:
    """Say how a cycle ended that did not complete."""
    name = state.name
    why = f": {state.reason}" if state.reason else ""
    return f'cycle {name.cycle} of flow "{name.flow_id}" ended as {state.status.value}{why}'
