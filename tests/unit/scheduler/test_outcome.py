"""The outcome of a cycle."""

import pytest

from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.node_counts import NodeCounts
from tradewind.scheduler.domain.outcome import ComponentOutcome, cycle_outcome

SKIP, FAST, GO_ON = FailurePolicy.SKIP_DOWNSTREAM, FailurePolicy.FAIL_FAST, FailurePolicy.CONTINUE

GOOD = ComponentOutcome(NodeCounts(completed=3), sinks_completed=1)
BRANCHED = ComponentOutcome(NodeCounts(completed=2, skipped=2), sinks_completed=1)
ALL_SINKS_SKIPPED = ComponentOutcome(NodeCounts(completed=1, skipped=2), sinks_completed=0)
FAILED = ComponentOutcome(NodeCounts(completed=1, failed=1, skipped=1), sinks_completed=0)
HALF_FAILED = ComponentOutcome(NodeCounts(completed=2, failed=1), sinks_completed=1)
TERMINATED = ComponentOutcome(NodeCounts(completed=1, terminated=1, skipped=1), sinks_completed=0)


@pytest.mark.parametrize(
    ("components", "policy", "outcome"),
    [
        ([GOOD], SKIP, "completed"),
        ([GOOD, GOOD], FAST, "completed"),
        ([BRANCHED], SKIP, "completed"),
        ([ALL_SINKS_SKIPPED], SKIP, "completed"),
        ([FAILED], SKIP, "failed"),
        ([FAILED, FAILED], GO_ON, "failed"),
        ([FAILED, ALL_SINKS_SKIPPED], SKIP, "failed"),
        ([HALF_FAILED], SKIP, "partial"),
        ([HALF_FAILED], GO_ON, "partial"),
        ([HALF_FAILED], FAST, "failed"),
        ([GOOD, FAILED], SKIP, "partial"),
        ([GOOD, FAILED], FAST, "failed"),
        ([TERMINATED], SKIP, "failed"),
        ([GOOD, TERMINATED], SKIP, "partial"),
    ],
)
def test_outcome_follows_from_components_and_failure_policy(
    components: list[ComponentOutcome], policy: FailurePolicy, outcome: str
) -> None:
    assert cycle_outcome(components, policy) == outcome
    assert cycle_outcome(reversed(components), policy) == outcome


@pytest.mark.parametrize("ended_by", [CycleStatus.TIMEOUT, CycleStatus.CANCELLED])
@pytest.mark.parametrize("component", [GOOD, FAILED, TERMINATED])
def test_timeout_or_cancellation_is_the_outcome(ended_by: CycleStatus, component: ComponentOutcome) -> None:
    assert cycle_outcome([component], SKIP, ended_by) is ended_by


def test_cycle_cannot_be_ended_by_another_status() -> None:
    with pytest.raises(ValueError, match='not by "completed"'):
        cycle_outcome([GOOD], SKIP, CycleStatus.COMPLETED)


def test_open_nodes_leave_no_outcome() -> None:
    waiting = ComponentOutcome(NodeCounts(completed=1, pending=2), sinks_completed=1)
    with pytest.raises(ValueError, match="2 nodes are not terminal"):
        cycle_outcome([GOOD, waiting], SKIP)


def test_nodes_are_counted_by_status() -> None:
    counts = NodeCounts.of(["completed", "error", "failed", "skipped", "running", "pending", "registered"])
    assert counts == NodeCounts(1, 1, 1, 1, 2, 0, 1)
    assert (counts.total, counts.open) == (7, 3)
    assert counts + NodeCounts(terminated=4) == NodeCounts(1, 1, 1, 1, 2, 4, 1)
    with pytest.raises(ValueError, match="truthy"):
        NodeCounts.of(["truthy"])
