"""Edges whose values never fit the input that they lead into."""

import pytest

from tests.unit.scheduler.flows import Weather, analyzed, edge, flow, node
from tests.unit.scheduler.test_declared_types import Catalogue, Declared
from tradewind.scheduler.domain.node_types import InputDeclaration
from tradewind.server.json_types import ANY, JsonTypes, types_of

NUMBER, INTEGER, TEXT = (types_of(f'{{"type": "{name}"}}') for name in ("number", "integer", "string"))
LIST, MAYBE_TEXT = types_of('{"type": "array"}'), TEXT | {"null"}


def warnings(given: JsonTypes, taken: JsonTypes, target: Weather | None = None) -> list[tuple[str, str]]:
    """Return what is warned of when an output of one node leads into the input of another."""
    catalogue = Catalogue(
        {"feed": Declared(outputs={"out": given}), "model": Declared(inputs={"in": InputDeclaration(types=taken)})}
    )
    nodes = [node("feed", "feed"), node("model", "model", **target or {})]
    found = analyzed(flow(nodes=nodes, edges=[edge("feed", "model")]), catalogue)
    assert found.definition is not None
    return [(each.path, each.message) for each in found.warnings]


@pytest.mark.parametrize(
    ("given", "taken"),
    [(NUMBER, NUMBER), (INTEGER, NUMBER), (NUMBER, INTEGER), (MAYBE_TEXT, TEXT), (TEXT, ANY), (ANY, LIST)],
)
def test_nothing_is_said_where_some_value_fits(given: JsonTypes, taken: JsonTypes) -> None:
    assert warnings(given, taken) == []


@pytest.mark.parametrize(
    ("given", "taken", "words"),
    [
        (TEXT, NUMBER, ("string", "number")),
        (MAYBE_TEXT, LIST, ("null or string", "array")),
        (INTEGER, LIST | TEXT, ("integer", "array or string")),
    ],
)
def test_values_that_never_fit_are_a_warning(given: JsonTypes, taken: JsonTypes, words: tuple[str, str]) -> None:
    message = f'output "out" of node "feed" is of type {words[0]}, but input "in" of node "model" takes {words[1]}'
    assert warnings(given, taken) == [("edges[0]", message)]


def test_input_over_whose_items_a_node_runs_takes_a_list() -> None:
    over_items = {"map": "in"}
    assert warnings(LIST, NUMBER, target=over_items) == []
    ((_, message),) = warnings(NUMBER, NUMBER, target=over_items)
    assert message.endswith('is of type number, but input "in" of node "model" takes array')


def test_node_that_runs_for_each_item_puts_out_a_list() -> None:
    weather = flow(
        nodes=[node("feed", "feed"), node("each", "each", map="in"), node("model", "model")],
        edges=[edge("feed", "each"), edge("each", "model"), edge("each", "model", "errors", "faults")],
    )
    inputs = {"in": InputDeclaration(types=NUMBER), "faults": InputDeclaration(types=LIST)}
    catalogue = Catalogue(
        {
            "feed": Declared(outputs={"out": LIST}),
            "each": Declared(inputs={"in": InputDeclaration(types=NUMBER)}, outputs={"out": NUMBER}),
            "model": Declared(inputs=inputs),
        }
    )
    found = analyzed(weather, catalogue)
    assert [(each.path, each.message.split(", but ")[0]) for each in found.warnings] == [
        ("edges[1]", 'output "out" of node "each" is of type array')
    ]


def test_nothing_is_said_of_types_that_nobody_offers() -> None:
    found = analyzed(
        flow(nodes=[node("feed", "delay"), node("model", "model")], edges=[edge("feed", "model", "output")])
    )
    assert found.warnings == ()
