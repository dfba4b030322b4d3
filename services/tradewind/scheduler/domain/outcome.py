"""The outcome of a cycle, from the outcomes of its components."""

from collections.abc import Iterable
from dataclasses import dataclass

from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.node_counts import NodeCounts


@dataclass(frozen=True, slots=True)
class ComponentOutcome:
    """A finished component: its nodes by status, and how many nodes without output edges (sinks) completed."""

    counts: NodeCounts
    sinks_completed: int


def cycle_outcome(
    components: Iterable[ComponentOutcome],
    failure_policy: FailurePolicy,
    ended_by: CycleStatus | None = None,
) -> CycleStatus:
    """Return the status in which a cycle ends once all its components have finished.

    `ended_by` is `timeout` or `cancelled` when that ended the cycle; it is then the outcome. Otherwise the outcome is
    `completed` when no node failed or was terminated (a node that was skipped, by a branch for example, is not a
    failure); `failed` when after a failure no sink of the whole cycle completed, and after any failure under
    `fail_fast`; else `partial`. Raises ValueError for another `ended_by`, or when a node is still open.
    """
    if ended_by is not None:
        if ended_by not in (CycleStatus.TIMEOUT, CycleStatus.CANCELLED):
            raise ValueError(f'a cycle is ended by "timeout" or "cancelled", not by "{ended_by}"')
        return ended_by
    counts = NodeCounts()
    sinks_completed = 0
    for component in components:
        counts += component.counts
        sinks_completed += component.sinks_completed
    if counts.open:
        raise ValueError(f"{counts.open} nodes are not terminal: the cycle has no outcome yet")
    if not counts.failed and not counts.terminated:
        return CycleStatus.COMPLETED
    if failure_policy is FailurePolicy.FAIL_FAST or not sinks_completed:
        return CycleStatus.FAILED
    return CycleStatus.PARTIAL
