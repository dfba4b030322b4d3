"""Differences between two definitions of a flow."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.scheduler.domain.flow_diff import ChangeKind, EdgeChange, FieldChange, FlowDiff, NodeChange, diff_of
from tradewind.scheduler.rpc import revision_mapping


def flow(nodes: list[dict[str, Any]] | None = None, edges: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """Return a flow of nodes and of edges such as `a.out>b.in`."""
    joined = []
    for edge in edges or []:
        (source, source_handle), (target, target_handle) = (end.split(".") for end in edge.split(">"))
        ends = {"source": source, "source_handle": source_handle, "target": target, "target_handle": target_handle}
        joined.append(ends)
    return {"interval": 60, "nodes": nodes or [{"id": "a", "type": "t"}], "edges": joined, **more}


def node(node_id: str, **more: Any) -> dict[str, Any]:
    return {"id": node_id, "type": "t", **more}


def test_equal_flows_have_an_empty_diff() -> None:
    assert diff_of(flow(), flow()) == FlowDiff()


def test_added_removed_and_changed_nodes() -> None:
    before = flow([node("a", config={"window": 20, "deep": {"x": [1, 2]}}), node("b")])
    after = flow([node("a", config={"window": True, "deep": {"x": [1, 3]}}, priority=2), node("c", timeout=5)])
    assert diff_of(before, after).nodes == (
        NodeChange(
            "a",
            ChangeKind.CHANGED,
            fields=(
                FieldChange("config.window", "20", "true"),
                FieldChange("config.deep.x", "[1,2]", "[1,3]"),
                FieldChange("priority", "", "2"),
            ),
        ),
        NodeChange("b", ChangeKind.REMOVED, before_json='{"id":"b","type":"t"}'),
        NodeChange("c", ChangeKind.ADDED, after_json='{"id":"c","timeout":5,"type":"t"}'),
    )


def test_one_and_true_differ() -> None:
    (change,) = diff_of(flow(keep=1), flow(keep=True)).settings
    assert (change.before_json, change.after_json) == ("1", "true")


def test_repeated_edges_are_compared_by_count() -> None:
    before = flow(edges=["a.x>b.y", "a.x>b.y", "a.x>c.y"])
    after = flow(edges=["a.x>b.y", "a.z>c.y"])
    assert diff_of(before, after).edges == (
        EdgeChange(ChangeKind.REMOVED, ("a", "x", "b", "y")),
        EdgeChange(ChangeKind.REMOVED, ("a", "x", "c", "y")),
        EdgeChange(ChangeKind.ADDED, ("a", "z", "c", "y")),
    )


def test_settings_are_compared_field_by_field() -> None:
    before = flow(schedule={"cron": "0 2 * * *", "zone": "Europe/Berlin"}, overlap="allow", labels={"team.a": "x"})
    after = flow(schedule={"cron": "0 3 * * *", "zone": "Europe/Berlin"}, labels={"team.a": "y"}, interval=5)
    assert diff_of(before, after).settings == (
        FieldChange("interval", "60", "5"),
        FieldChange("schedule.cron", '"0 2 * * *"', '"0 3 * * *"'),
        FieldChange("overlap", '"allow"', ""),
        FieldChange('labels["team.a"]', '"x"', '"y"'),
    )


def test_changed_order_of_nodes_or_edges_is_reported() -> None:
    nodes = [node("a"), node("b"), node("c")]
    diff = diff_of(flow(nodes), flow([nodes[2], nodes[0], node("new")]))
    assert (diff.nodes_reordered, diff.edges_reordered) == (True, False)
    diff = diff_of(flow(edges=["a.x>b.y", "a.x>c.y"]), flow(edges=["a.x>c.y", "a.x>b.y"]))
    assert (diff.edges, diff.nodes_reordered, diff.edges_reordered) == ((), False, True)
    diff = diff_of(flow(edges=["a.x>b.y", "a.x>c.y"]), flow(edges=["a.x>c.y"]))
    assert not diff.edges_reordered


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("pq"), inner, max_size=2),
    max_leaves=4,
)
flows = st.builds(
    lambda ids, configs, edges, more: flow(
        [node(node_id, config=config) for node_id, config in zip(ids, configs, strict=False)], edges, **more
    ),
    st.permutations("abc"),
    st.lists(st.dictionaries(st.sampled_from("pq"), values, max_size=2), min_size=1, max_size=3),
    st.lists(st.sampled_from(["a.x>b.y", "a.x>c.y", "b.x>c.y"]), max_size=3),
    st.dictionaries(st.sampled_from(["overlap", "labels"]), values, max_size=2),
)


@given(flows, flows)
def test_diff_is_empty_only_for_equal_flows_and_symmetric(first: dict[str, Any], second: dict[str, Any]) -> None:
    there, back = diff_of(first, second), diff_of(second, first)
    equal = repr(sort(first)) == repr(sort(second))
    assert (there == FlowDiff()) is equal
    assert {(each.path, each.before_json, each.after_json) for each in there.settings} == {
        (each.path, each.after_json, each.before_json) for each in back.settings
    }
    assert {each.node_id for each in there.nodes} == {each.node_id for each in back.nodes}
    assert (there.nodes_reordered, there.edges_reordered) == (back.nodes_reordered, back.edges_reordered)


def sort(value: Any) -> Any:
    """Return the same value with the keys of objects in order."""
    if isinstance(value, dict):
        return {key: sort(value[key]) for key in sorted(value)}
    return [sort(each) for each in value] if isinstance(value, list) else value


MANY = range(100)
SIZED = {
    "settings": (flow(), flow(labels={f"label{n}": "v" for n in MANY})),
    "a long value": (flow(), flow(description="x" * 5000)),
    "a long value that is gone": (flow(description="x" * 5000), flow()),
    "fields": (flow([node("a", **{f"p{n}": 1 for n in MANY})]), flow([node("a", **{f"p{n}": 2 for n in MANY})])),
    "new nodes": (flow([node("a")]), flow([node("a"), *[node(f"n{n}") for n in MANY]])),
    "nodes that are gone": (flow([node("a"), *[node(f"n{n}", config="y" * 50) for n in MANY]]), flow([node("a")])),
    "changed nodes": (flow([node(f"n{n}") for n in MANY]), flow([node(f"n{n}", timeout=5) for n in MANY])),
    "edges": (flow(edges=[f"{'a' * 60}.x>{'b' * 60}{n}.y" for n in MANY]), flow()),
}


@pytest.mark.parametrize("case", SIZED)
def test_size_is_about_that_of_the_message(case: str) -> None:
    """Whoever makes a message of a large diff leaves the event loop for that, so it must not seem small."""
    diff = diff_of(*SIZED[case])
    message = revision_mapping.diff(diff).ByteSize()
    assert message <= diff.size <= 2.5 * message
