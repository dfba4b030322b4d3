"""Plans, as submitted for each component."""

import time

from tests.unit.scheduler.flows import Weather, analyzed, edge, flow, node
from tradewind.scheduler.domain.component_plan import ComponentPlan, PlanEdge
from tradewind.scheduler.domain.failure_policy import FailurePolicy

NODES = [node("x"), node("a", config={"n": 1}), node("y"), node("b"), node("c")]
EDGES = [edge("b", "c"), edge("x", "y"), edge("a", "c", target_handle="many"), edge("b", "c", target_handle="many")]


def plans_of(weather: Weather) -> tuple[ComponentPlan, ...]:
    definition = analyzed(weather).definition
    assert definition is not None
    return definition.plans()


def test_plans_keep_the_order_of_nodes_and_edges() -> None:
    first, second = plans_of(flow(nodes=NODES, edges=EDGES, failure_policy="continue"))
    assert [first.component_id, second.component_id] == ["0", "1"]
    assert [item.node_id for item in first.nodes] == ["x", "y"]
    assert first.edges == (PlanEdge(0, "out", 1, "in"),)
    assert [item.node_id for item in second.nodes] == ["a", "b", "c"]
    assert second.edges == (PlanEdge(1, "out", 2, "in"), PlanEdge(0, "out", 2, "many"), PlanEdge(1, "out", 2, "many"))
    assert second.nodes[0].config_json == '{"n":1}'
    assert second.failure_policy is FailurePolicy.CONTINUE


def test_plan_digest_covers_what_runs_and_nothing_else() -> None:
    digest = [plan.digest for plan in plans_of(flow(nodes=NODES, edges=EDGES))][1]

    def changed(weather: Weather, component: int = 1) -> bool:
        return plans_of(weather)[component].digest != digest

    assert not changed(flow(nodes=NODES, edges=EDGES, interval=1, labels={"a": "b"}, keep_cycles=3, timeout=9))
    assert not changed(flow(nodes=[NODES[1], *NODES[3:]], edges=[EDGES[0], *EDGES[2:]]), component=0)
    assert changed(flow(nodes=NODES, edges=EDGES, failure_policy="fail_fast"))
    assert changed(flow(nodes=NODES, edges=[EDGES[1], EDGES[2], EDGES[0], EDGES[3]]))
    assert changed(flow(nodes=NODES, edges=EDGES[:3]))
    assert changed(flow(nodes=NODES, edges=EDGES, max_running=3))
    for field, value in {
        "type": "other",
        "config": {"n": 2},
        "run_if": "all_done",
        "schedule_to_start": 1,
        "timeout": 1,
        "retry": {"attempts": 2},
        "timeouts": {"total": 5},
        "priority": 1,
        "cache": "screening",
        "concurrency": {"key": "k", "max": 1},
        "rate": {"key": "k", "limit": "1/s"},
        "id": "a2",
    }.items():
        nodes = [NODES[0], {**NODES[1], field: value}, *NODES[2:]]
        edges = [{**item, "source": "a2"} if field == "id" and item["source"] == "a" else item for item in EDGES]
        assert changed(flow(nodes=nodes, edges=edges)), field


def test_chain_of_ten_thousand_nodes_is_planned_in_two_seconds() -> None:
    nodes = [node(f"n{i}") for i in range(10_000)]
    edges = [edge(f"n{i}", f"n{i + 1}") for i in range(9_999)]
    began = time.process_time()
    (plan,) = plans_of(flow(nodes=nodes, edges=edges))
    assert time.process_time() - began < 2
    assert len(plan.nodes) == 10_000
    assert plan.edges[-1] == PlanEdge(9_998, "out", 9_999, "in")
