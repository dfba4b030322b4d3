"""Node tasks that wait for a cycle of another flow: what the scheduler learns of them, and what it reports."""

from dataclasses import dataclass
from enum import StrEnum

from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import TaskError

MAX_AT_ONCE = 100
"""The most reports in one call, and the most node tasks whose inputs one call asks for."""


class ReportKind(StrEnum):
    """What became of a cycle."""

    BEGUN = "begun"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SubFlowReport:
    """What became of the run named `child`, "" when none could begin, for attempt `attempt` of a node task.

    When the run completed, the node task emits `output` (JSON text). When it failed, `final` rules out another attempt.
    """

    task_id: str
    run_id: str
    attempt: int
    kind: ReportKind
    child: str = ""
    output: str = ""
    error: TaskError | None = None
    final: bool = False


def sub_flow_wait_text(flow_id: str, child: str) -> str:
    """Say what a node of type `flow` waits for; `child` names the run that has begun, "" for none."""
    if not child:
        return f'waits for a cycle of flow "{flow_id}" to begin'
    return f'waits for cycle {RunName.of_cycle(child).cycle} of flow "{flow_id}"'
