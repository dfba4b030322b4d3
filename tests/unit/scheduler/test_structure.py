"""Components, entry nodes, waves and closed paths."""

import itertools
import random
import time

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.scheduler.domain.closed_paths import closed_paths
from tradewind.scheduler.domain.structure import FlowStructure, structure_of

Pairs = list[tuple[str, str]]


def test_structure_of_the_example_in_the_specification() -> None:
    nodes = ["node_A", "node_B", "node_C", "node_D", "node_E"]
    edges = [("node_A", "node_B"), ("node_B", "node_C"), ("node_D", "node_E")]
    assert structure_of(nodes, edges).to_dict() == {
        "component_count": 2,
        "components": {
            "0": {
                "nodes": ["node_A", "node_B", "node_C"],
                "entry_nodes": ["node_A"],
                "node_count": 3,
                "is_dag": True,
            },
            "1": {
                "nodes": ["node_D", "node_E"],
                "entry_nodes": ["node_D"],
                "node_count": 2,
                "is_dag": True,
            },
        },
    }


def test_component_with_a_closed_path_is_no_dag_and_names_the_path() -> None:
    structure = structure_of(["in", "a", "b", "out", "other"], [("in", "a"), ("a", "b"), ("b", "a"), ("b", "out")])
    assert structure.to_dict()["components"]["0"] == {
        "nodes": ["in", "a", "b", "out"],
        "entry_nodes": ["in"],
        "node_count": 4,
        "is_dag": False,
        "error": "Contains cycle",
        "cycle_path": ["a", "b", "a"],
    }
    assert structure.components[0].waves == (("in",),)
    assert structure.components[1].is_dag
    assert not structure.is_dag


def test_components_are_numbered_by_their_first_node() -> None:
    structure = structure_of(["z", "b", "y", "a"], [("a", "z"), ("y", "b")])
    assert [(c.component_id, c.nodes, c.entry_nodes) for c in structure.components] == [
        ("0", ("z", "a"), ("a",)),
        ("1", ("b", "y"), ("y",)),
    ]


def test_waves_of_a_diamond() -> None:
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d")]
    assert structure_of(["d", "c", "b", "a"], edges).components[0].waves == (("a",), ("c", "b"), ("d",))


def test_parallel_edges_and_self_loops() -> None:
    structure = structure_of(["a", "b", "c"], [("a", "b"), ("a", "b"), ("c", "c")])
    assert structure.components[0].waves == (("a",), ("b",))
    assert structure.components[1].cycle_path == ("c", "c")
    assert structure.components[1].entry_nodes == ()


def test_edges_to_unknown_nodes_are_ignored() -> None:
    assert structure_of(["a"], [("a", "x"), ("x", "a")]) == structure_of(["a"], [])
    assert structure_of([], [("a", "b")]).to_dict() == {"component_count": 0, "components": {}}


def test_closed_path_is_the_shortest_through_its_first_node() -> None:
    ring = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    assert structure_of(list("abcd"), ring).components[0].cycle_path == tuple("abcda")
    assert structure_of(list("abcd"), [*ring, ("b", "a")]).components[0].cycle_path == tuple("aba")


def test_each_strongly_connected_group_has_one_closed_path() -> None:
    #      0 <-> 1   2 -> 3 -> 2 (behind 1)   4 alone   5 to itself
    assert closed_paths([[1], [0, 2], [3], [2], [], [5]]) == [[0, 1, 0], [2, 3, 2], [5, 5]]


@pytest.mark.parametrize("shape", ["chain", "ring", "reversed chain", "fan", "loose"])
def test_ten_thousand_nodes_are_analyzed_in_a_second(shape: str) -> None:
    nodes = [f"n{i}" for i in range(10_000)]
    chain = list(itertools.pairwise(nodes))
    edges = {
        "chain": chain,
        "ring": [*chain, (nodes[-1], nodes[0])],
        "reversed chain": [(b, a) for a, b in chain],
        "fan": [("n0", node) for node in nodes[1:]],
        "loose": [],
    }[shape]
    began = time.process_time()
    structure = structure_of(nodes, edges)
    assert time.process_time() - began < 1
    assert sum(component.node_count for component in structure.components) == 10_000
    if shape == "chain":
        assert len(structure.components[0].waves) == 10_000
    if shape == "ring":
        assert structure.components[0].cycle_path == (*nodes, "n0")


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], Pairs]:
    count = draw(st.integers(1, 14))
    nodes = draw(st.permutations([f"n{i}" for i in range(count)]))
    ends = st.sampled_from(nodes)
    return nodes, draw(st.lists(st.tuples(ends, ends), max_size=20))


@given(graphs())
def test_small_graphs_agree_with_networkx(graph: tuple[list[str], Pairs]) -> None:
    agrees_with_networkx(*graph)


@pytest.mark.parametrize("seed", range(20))
def test_larger_graphs_agree_with_networkx(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [f"n{i}" for i in range(300)]
    chance.shuffle(nodes)
    pairs = [(chance.randrange(300), chance.randrange(300)) for _ in range(chance.choice([100, 250, 600]))]
    if seed % 2:  # edges along one order of the nodes make a DAG
        pairs = [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]
    agrees_with_networkx(nodes, [(f"n{a}", f"n{b}") for a, b in pairs])


def agrees_with_networkx(nodes: list[str], edges: Pairs) -> None:
    structure = structure_of(nodes, edges)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    place = {node: index for index, node in enumerate(nodes)}

    parts = [sorted(part, key=place.__getitem__) for part in nx.weakly_connected_components(graph)]
    expected = sorted(parts, key=lambda part: place[part[0]])
    assert [list(component.nodes) for component in structure.components] == expected
    assert [component.component_id for component in structure.components] == [str(i) for i in range(len(expected))]

    for component in structure.components:
        part = graph.subgraph(component.nodes)
        assert component.is_dag == nx.is_directed_acyclic_graph(part)
        assert component.entry_nodes == tuple(node for node in component.nodes if not part.in_degree(node))
        if component.is_dag:
            generations = [sorted(wave, key=place.__getitem__) for wave in nx.topological_generations(part)]
            assert [list(wave) for wave in component.waves] == generations
        else:
            is_closed_path(graph, component.cycle_path)
    every_group_has_one_path(structure, graph, nodes, edges)


def every_group_has_one_path(
    structure: FlowStructure, graph: "nx.DiGraph[str]", nodes: list[str], edges: Pairs
) -> None:
    place = {node: index for index, node in enumerate(nodes)}
    successors: list[list[int]] = [[] for _ in nodes]
    for source, target in edges:
        successors[place[source]].append(place[target])
    paths = [tuple(nodes[i] for i in path) for path in closed_paths(successors)]
    groups = [c for c in nx.strongly_connected_components(graph) if len(c) > 1 or graph.has_edge(*(list(c) * 2))]
    assert {frozenset(group) for group in groups} == {
        frozenset(group) for group in groups for path in paths if group.issuperset(path)
    }
    assert len(paths) == len(groups)
    assert [path[0] for path in paths] == sorted((path[0] for path in paths), key=place.__getitem__)
    for path in paths:
        is_closed_path(graph, path)
    assert {c.cycle_path for c in structure.components if c.cycle_path} <= set(paths)


def is_closed_path(graph: "nx.DiGraph[str]", path: tuple[str, ...]) -> None:
    assert path[0] == path[-1]
    assert len(set(path)) == len(path) - 1, "no node twice but the first"
    assert all(graph.has_edge(a, b) for a, b in itertools.pairwise(path))
    steps_to = nx.single_source_shortest_path_length(graph, path[0])
    assert len(path) - 1 == min(1 + steps_to[node] for node in graph.predecessors(path[0]) if node in steps_to)
