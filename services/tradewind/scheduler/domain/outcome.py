"""The outcome of a cycle, from the ends of its components."""

from tradewind.scheduler.domain.chain_state import ComponentEnd, StopRequest
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.failure_policy import FailurePolicy


def cycle_outcome(nodes: ComponentEnd, failure_policy: FailurePolicy, stop: StopRequest | None = None) -> CycleStatus:
    """Return the status in which a cycle ends once all its components have ended; `nodes` is their sum.

    A cycle that was asked to stop ends as `timeout` or `cancelled`. Otherwise the outcome is `completed` when no node
    failed or was terminated (a node that was skipped, by a branch for example, is not a failure); `failed` when after a
    failure no node without output edges (sink) completed, and after any failure under `fail_fast`; else `partial`.
    """
    if stop is not None:
        return CycleStatus.TIMEOUT if stop.timeout else CycleStatus.CANCELLED
    if not nodes.failed and not nodes.terminated:
        return CycleStatus.COMPLETED
    if failure_policy is FailurePolicy.FAIL_FAST or not nodes.sinks_completed:
        return CycleStatus.FAILED
    return CycleStatus.PARTIAL
