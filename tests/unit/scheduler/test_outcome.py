"""The outcome of a cycle."""

import pytest

from tradewind.scheduler.domain.chain_state import ComponentEnd, StopRequest
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.node_counts import NodeCounts
from tradewind.scheduler.domain.outcome import cycle_outcome

SKIP, FAST, GO_ON = FailurePolicy.SKIP_DOWNSTREAM, FailurePolicy.FAIL_FAST, FailurePolicy.CONTINUE

GOOD = ComponentEnd(completed=3, sinks_completed=1)
BRANCHED = ComponentEnd(completed=2, skipped=2, sinks_completed=1)
ALL_SINKS_SKIPPED = ComponentEnd(completed=1, skipped=2)
FAILED = ComponentEnd(completed=1, failed=1, skipped=1)
HALF_FAILED = ComponentEnd(completed=2, failed=1, sinks_completed=1)
TERMINATED = ComponentEnd(completed=1, terminated=1, skipped=1)


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
    components: list[ComponentEnd], policy: FailurePolicy, outcome: str
) -> None:
    assert cycle_outcome(ComponentEnd.total(components), policy) == outcome


@pytest.mark.parametrize(("timeout", "outcome"), [(True, "timeout"), (False, "cancelled")])
@pytest.mark.parametrize("component", [GOOD, FAILED, TERMINATED])
def test_timeout_or_cancellation_is_the_outcome(component: ComponentEnd, timeout: bool, outcome: str) -> None:
    assert cycle_outcome(component, SKIP, StopRequest("somebody", "", 1, timeout)) == outcome


def test_counts_of_nodes_are_added_by_status() -> None:
    counts = NodeCounts(1, 1, 1, 1, 2, 0, 1) + NodeCounts(terminated=4, suspended=1)
    assert counts == NodeCounts(1, 1, 1, 1, 2, 4, 1, 1)
    assert counts.total == 12
