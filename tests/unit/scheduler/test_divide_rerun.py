"""Which nodes keep their results in a rerun, and which run again."""

import itertools
from collections.abc import Collection

import pytest

from tests.unit.scheduler.flows import analyzed, edge, flow, node
from tradewind.scheduler.domain.component_plan import ComponentPlan
from tradewind.scheduler.domain.node_status import NodeStatus
from tradewind.scheduler.domain.rerun import NodeResult, divide

LETTERS = {
    "c": NodeResult(NodeStatus.COMPLETED, ("out",)),
    "m": NodeResult(NodeStatus.COMPLETED),
    "f": NodeResult(NodeStatus.FAILED),
    "t": NodeResult(NodeStatus.TERMINATED),
    "s": NodeResult(NodeStatus.SKIPPED),
    "r": NodeResult(NodeStatus.REGISTERED),
}


def plan_of(edges: str, **run_ifs: str) -> ComponentPlan:
    """Return the plan of edges such as `ab bc`; nodes are named by letters."""
    names = sorted(set(edges) - {" "})
    nodes = [node(name, run_if=run_ifs.get(name, "all_succeeded")) for name in names]
    definition = analyzed(flow(nodes=nodes, edges=[edge(*pair) for pair in edges.split()])).definition
    assert definition is not None
    (plan,) = definition.plans()
    return plan


def divided(plan: ComponentPlan, statuses: str, begin_at: Collection[str] = ()) -> tuple[str, str, str]:
    """Return the names of nodes that are kept, run again, and have expired; a letter gives each node's status."""
    names = [each.node_id for each in plan.nodes]
    results = {name: LETTERS[letter] for name, letter in zip(names, statuses, strict=True) if letter != "-"}
    found = divide(plan, results, begin_at)
    kept, again, expired = ("".join(names[at] for at in places) for places in (found.kept, found.again, found.expired))
    return kept, again, expired


@pytest.mark.parametrize(
    ("edges", "statuses", "begin_at", "expected"),
    [
        ("ab bc ad de", "cfscc", "", ("ade", "bc", "")),
        ("ab bc ad de", "ctscc", "", ("ade", "bc", "")),
        ("ab bc ad de", "ccccc", "", ("abcde", "", "")),
        ("ab bc ad de", "ccccc", "d", ("abc", "de", "")),
        ("ab bc ad de", "cfscc", "d", ("a", "bcde", "")),
        # Nodes may be listed in any order: b comes last, after c, though a leads to it as well.
        ("ad dc cb ab", "cccc", "", ("abcd", "", "")),
        ("ad dc cb ab", "cccc", "d", ("a", "bcd", "")),
        # A branch that was not taken is not taken again; one that depends on nodes that run again is open.
        ("ab bc ad", "mssc", "", ("ad", "", "")),
        ("ab bc ad", "mssc", "d", ("a", "d", "")),
        ("ab bc ad", "mssc", "a", ("", "abcd", "")),
        # A node that a stop skipped, or deprived of its inputs, has no good result.
        ("ab bc", "sss", "", ("", "abc", "")),
        ("ab bc", "css", "", ("a", "bc", "")),
        # Nodes that would be kept but are no longer on record.
        ("ab bc ad de", "-cfcc", "", ("bde", "c", "a")),
        ("ab bc ad de", "rcfcc", "", ("bde", "c", "a")),
        ("ab bc", "c--", "b", ("a", "bc", "")),
    ],
)
def test_nodes_without_good_result_run_again_with_all_downstream(
    edges: str, statuses: str, begin_at: str, expected: tuple[str, str, str]
) -> None:
    assert divided(plan_of(edges), statuses, begin_at) == expected


def test_all_done_node_runs_again_after_a_failure_upstream() -> None:
    plan = plan_of("ab bc", c="all_done")
    assert divided(plan, "cfc") == ("a", "bc", "")
    assert divided(plan, "ccc") == ("abc", "", "")
    # Only a stop skips it.
    assert divided(plan, "ccs") == ("ab", "c", "")


def test_skipped_any_succeeded_node_runs_again_if_one_input_is_live() -> None:
    plan = plan_of("ac bc", c="any_succeeded")
    # It was skipped by hand, since one of its inputs is live.
    assert divided(plan, "cms") == ("ab", "c", "")
    assert divided(plan, "mms") == ("ab", "", "")


def test_chain_of_ten_thousand_nodes_is_divided() -> None:
    names = [f"n{at:05}" for at in range(10_000)]
    nodes = [node(name) for name in names]
    edges = [edge(a, b) for a, b in itertools.pairwise(names)]
    definition = analyzed(flow(nodes=nodes, edges=edges)).definition
    assert definition is not None
    (plan,) = definition.plans()
    results = dict.fromkeys(names, LETTERS["c"]) | {names[9_000]: LETTERS["f"]}
    found = divide(plan, results, ())
    assert (len(found.kept), len(found.again)) == (9_000, 1_000)
