"""Flows compared with what live workers have declared about their node types."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.unit.scheduler.flows import Weather, analyzed, edge, faults_of, flow, node
from tradewind.scheduler.domain.node_types import InputDeclaration, NodeTypeDeclaration
from tradewind.server.json_types import ANY, JsonTypes
from tradewind.server.nearest_name import NearestName

SINGLE, MANY = InputDeclaration(), InputDeclaration(gather=True)
NEEDED, MANY_NEEDED = InputDeclaration(required=True), InputDeclaration(gather=True, required=True)


@dataclass(frozen=True)
class Declared:
    """A node type whose config may only contain numbers."""

    inputs: Mapping[str, InputDeclaration] = field(default_factory=dict)
    outputs: Mapping[str, JsonTypes] = field(default_factory=dict)
    config_keys: tuple[str, ...] = ()

    def config_faults(self, config: Mapping[str, Any]) -> Iterable[tuple[Sequence[str | int], str]]:
        if config.get("all_wrong"):
            yield (), "must not be all wrong"
        for key, value in config.items():
            for index, item in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(item, int):
                    yield ([key, index] if isinstance(value, list) else [key]), f"{item!r} is not a number"


@dataclass(frozen=True)
class Catalogue:
    types: Mapping[str, NodeTypeDeclaration]

    def declared(self, node_type: str) -> NodeTypeDeclaration | None:
        return self.types.get(node_type)

    def hint(self, node_type: str) -> str:
        return NearestName(self.types).hint(node_type)


WORKERS = Catalogue(
    {
        "feed": Declared(outputs={"prices": ANY, "volume": ANY}),
        "model": Declared(inputs={"prices": SINGLE, "extra": SINGLE}, outputs={"signal": ANY}),
        "report": Declared(inputs={"lines": MANY_NEEDED, "title": NEEDED}),
    }
)
FEED, MODEL, REPORT = node("feed", "feed"), node("model", "model"), node("report", "report", config={"title": 1})
GOOD = flow(
    nodes=[FEED, MODEL, REPORT],
    edges=[
        edge("feed", "model", "prices", "prices"),
        edge("model", "report", "signal", "lines"),
        edge("feed", "report", "volume", "lines"),
    ],
)


def changed(nodes: list[Weather] | None = None, edges: list[Weather] | None = None) -> Weather:
    return {**GOOD, "nodes": nodes or GOOD["nodes"], "edges": GOOD["edges"] + (edges or [])}


def test_flow_that_matches_declared_types_has_no_faults() -> None:
    found = analyzed(GOOD, WORKERS)
    assert (found.violations, found.warnings) == ((), ())
    assert found.definition is not None


@pytest.mark.parametrize(
    ("weather", "faults"),
    [
        (
            changed(edges=[edge("feed", "model", "price", "extra")]),
            [
                (
                    "edges[3].source_handle",
                    'node type "feed" has no output handle "price"; did you mean "prices"?',
                )
            ],
        ),
        (
            changed(edges=[edge("feed", "model", "prices", "xyz")]),
            [
                (
                    "edges[3].target_handle",
                    'node type "model" has no input handle "xyz"; it has "extra", "prices"',
                )
            ],
        ),
        (
            {**GOOD, "edges": [*GOOD["edges"][1:], edge("model", "feed", "signal", "x")]},
            [
                ("edges[2].target_handle", 'node type "feed" has no input handle "x"; it has none'),
            ],
        ),
        (
            changed(edges=[edge("feed", "model", "volume", "prices")]),
            [
                (
                    "edges[3].target_handle",
                    'input "prices" of node "model" takes only one edge, and edges[0] already feeds it; '
                    'only an input that node type "model" declares as gathering takes several',
                )
            ],
        ),
        (
            changed(nodes=[FEED, MODEL, node("report", "report")]),
            [
                (
                    "nodes[2]",
                    'input "title" of node type "report" is required; give it an edge, or a value as "title" in config',
                )
            ],
        ),
        (
            changed(nodes=[FEED, {**MODEL, "config": {"window": "x", "all_wrong": True, "parts": [1, "y"]}}, REPORT]),
            [
                ("nodes[1].config", "must not be all wrong"),
                ("nodes[1].config.window", "'x' is not a number"),
                ("nodes[1].config.parts[1]", "'y' is not a number"),
            ],
        ),
    ],
)
def test_mismatch_with_declared_types_is_a_fault(weather: Weather, faults: list[tuple[str, str]]) -> None:
    assert faults_of(weather, WORKERS) == faults


def test_secret_is_accepted_for_any_config_value() -> None:
    secrets = {"key": {"$secret": "k"}, "keys": [1, {"$secret": "k"}]}
    assert faults_of(changed(nodes=[FEED, {**MODEL, "config": secrets}, REPORT]), WORKERS) == []
    title = {"title": {"$secret": "k"}}
    assert faults_of(changed(nodes=[FEED, MODEL, {**REPORT, "config": title}]), WORKERS) == []


def test_unoffered_type_is_a_warning_and_its_handles_gather() -> None:
    weather = changed(
        nodes=[FEED, MODEL, REPORT, node("x", "exotic"), node("y", "exotic", config={"any": "thing"})],
        edges=[edge("feed", "x", "prices", "in"), edge("feed", "x", "volume", "in"), edge("x", "y", "any", "any")],
    )
    found = analyzed(weather, WORKERS)
    assert found.violations == ()
    assert [(warning.path, warning.message) for warning in found.warnings] == [
        ("nodes[3].type", 'no live worker offers node type "exotic"; its nodes wait until one does')
    ]


def test_nearest_offered_type_is_suggested() -> None:
    found = analyzed(changed(nodes=[FEED, MODEL, REPORT, node("x", "modle")]), WORKERS)
    assert [warning.message for warning in found.warnings] == [
        'no live worker offers node type "modle"; its nodes wait until one does; did you mean "model"?'
    ]


def test_missing_required_input_of_an_entry_node_is_a_warning() -> None:
    found = analyzed(flow(nodes=[REPORT], edges=[]), WORKERS)
    assert found.violations == ()
    assert [(warning.path, warning.message) for warning in found.warnings] == [
        (
            "nodes[0]",
            'input "lines" of node type "report" is required; '
            "neither an edge nor config gives it, so the inputs of every run must",
        )
    ]


def test_warnings_beyond_a_hundred_are_counted_and_not_called_faults() -> None:
    found = analyzed(flow(nodes=[node(f"r{place}", "report") for place in range(120)], edges=[]), WORKERS)
    assert found.violations == ()
    assert len(found.warnings) == 101
    assert found.warnings[-1].message == "and 140 more"


def test_handlers_need_no_edge_for_their_outcome_input() -> None:
    workers = Catalogue({**WORKERS.types, "page": Declared(inputs={"outcome": NEEDED}, outputs={"paged": ANY})})
    pages = [node(name, "page") for name in ("page", "last", "next")]
    handlers = {"on_failure": ["page"], "finally": ["last", "next"]}
    weather = flow(nodes=[FEED, *pages], edges=[edge("last", "next", "paged", "outcome")], **handlers)
    found = analyzed(weather, workers)
    assert (found.violations, found.warnings) == ((), ())
    assert [each.path for each in analyzed(flow(nodes=[FEED, *pages], edges=[]), workers).warnings] == [
        "nodes[1]",
        "nodes[2]",
        "nodes[3]",
    ]


@pytest.mark.parametrize(
    ("schedule", "missing"),
    [
        ({"event": {"name": "order"}}, ["status", "lines"]),
        ({"flow_finished": {"flow_ids": ["a"]}}, ["lines"]),
        ({"cron": "@daily"}, ["event", "status", "lines"]),
    ],
)
def test_entry_nodes_need_nothing_for_inputs_that_the_event_of_their_schedule_gives(
    schedule: Mapping[str, Any], missing: Sequence[str]
) -> None:
    needed = dict.fromkeys(("event", "status", "lines"), NEEDED)
    publish = Catalogue({"publish": Declared(inputs=needed)})
    weather = {**flow(nodes=[node("publish", "publish")], edges=[]), "interval": None, "schedule": schedule}
    warnings = analyzed(weather, publish).warnings
    assert [warning.message.split('"')[1] for warning in warnings] == missing


def test_event_of_the_schedule_is_not_given_to_nodes_with_edges() -> None:
    types = Catalogue({**WORKERS.types, "page": Declared(inputs={"prices": SINGLE, "event": NEEDED})})
    joined = flow(nodes=[FEED, node("page", "page")], edges=[edge("feed", "page", "prices", "prices")])
    assert faults_of({**joined, "interval": None, "schedule": {"event": {"name": "order"}}}, types) == [
        (
            "nodes[1]",
            'input "event" of node type "page" is required; give it an edge, or a value as "event" in config',
        )
    ]


def test_types_are_not_checked_without_a_catalogue() -> None:
    wrong = changed(edges=[edge("feed", "model", "price", "xyz"), edge("feed", "model", "prices", "prices")])
    found = analyzed(wrong)
    assert (found.violations, found.warnings) == ((), ())


def test_faults_of_syntax_graph_and_types_are_reported_together() -> None:
    paths = [
        path
        for path, _ in faults_of(
            changed(
                nodes=[FEED, {**MODEL, "run_if": "never", "config": {"window": "x"}}, REPORT],
                edges=[edge("fed", "model", "prices", "prices"), edge("feed", "", "price", "prices")],
            ),
            WORKERS,
        )
    ]
    assert paths == [
        "nodes[1].run_if",
        "edges[4].target",
        "edges[3].source",
        "edges[3].target_handle",
        "edges[4].source_handle",
        "nodes[1].config.window",
    ]


BUILT_IN = flow(
    nodes=[
        node("feed", "feed"),
        node("pause", "delay", config={"seconds": -1}),
        node("ask", "approval", config={"form": {"title": "Sure?", "fields": [{"name": "a", "type": "date"}]}}),
        node("model", "model"),
    ],
    edges=[
        edge("feed", "pause", "prices", "input"),
        edge("pause", "model", "done", "prices"),
        edge("feed", "ask", "prices", "input"),
        edge("feed", "ask", "volume", "input"),
        edge("ask", "model", "approved", "extra"),
    ],
)


@pytest.mark.parametrize("catalogue", [WORKERS, None])
def test_built_in_types_are_checked_without_a_worker(catalogue: Catalogue | None) -> None:
    analysis = analyzed(BUILT_IN, catalogue)
    assert [(each.path, each.message) for each in analysis.violations] == [
        ("edges[1].source_handle", 'node type "delay" has no output handle "done"; it has "output"'),
        ("nodes[1].config.seconds", "must be a number from 0 to 315360000 (ten years), is -1"),
        ("nodes[2].config.form.fields[0].type", "must be one of text, number, integer, boolean, is 'date'"),
    ]
    assert analysis.warnings == ()


def test_worker_only_fields_of_a_built_in_type_are_a_warning() -> None:
    pause = {**node("pause", "delay", config={"seconds": 1}), "retry": {"attempts": 2}}
    (warning,) = analyzed(flow(nodes=[pause]), WORKERS).warnings
    assert warning.path == "nodes[0].retry"
    assert warning.message == 'does nothing: nodes of the built-in type "delay" go to no worker'
