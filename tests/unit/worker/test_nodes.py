"""What `@node` makes of a function: the declared type, its schemas, and what is refused."""

import functools
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from tradewind.flow import Cache
from tradewind.server import json_schema
from tradewind.testing import run_node
from tradewind.worker import Context, Emit, Gather, Node, Wait, node
from tradewind.worker.errors import NodeDefinitionError


class Side(Enum):
    """A choice."""

    BUY = "buy"
    SELL = "sell"


class Order(msgspec.Struct):
    """A structure of its own."""

    symbol: str
    side: Side = Side.BUY


@node("risk.check", outputs=["accepted", "refused"])
async def risk_check(
    ctx: Context,
    order: Order,
    prices: Gather[float],
    limit: Annotated[int, msgspec.Meta(ge=1, description="Most shares.")] = 100,
    mode: Literal["strict", "lax"] = "strict",
    anything: Any = None,
) -> Emit:
    """Refuses orders that are
    too large.

    More is in the manual.
    """
    return Emit(accepted=order)


def schemas(declared: Node[..., Any]) -> dict[str, Any]:
    """Return the schemas of the inputs by handle."""
    return {
        handle.name: json.loads(handle.schema_json) if handle.schema_json else None
        for handle in declared.declaration().inputs
    }


def test_declaration_has_handles_and_schemas() -> None:
    declared = risk_check.declaration()

    assert (declared.type, declared.description) == ("risk.check", "Refuses orders that are too large.")
    assert [(handle.name, handle.required, handle.gather) for handle in declared.inputs] == [
        ("order", True, False),
        ("prices", True, True),
        ("limit", False, False),
        ("mode", False, False),
        ("anything", False, False),
    ]
    assert [(handle.name, handle.schema_json) for handle in declared.outputs] == [("accepted", ""), ("refused", "")]
    assert schemas(risk_check)["prices"] == {"type": "number"}
    assert schemas(risk_check)["limit"] == {"type": "integer", "minimum": 1, "description": "Most shares."}
    assert schemas(risk_check)["anything"] is None


@pytest.mark.parametrize(
    ("config", "paths"),
    [
        ({}, []),
        ({"order": {"symbol": "IBM", "side": "sell"}, "prices": [1, 2.5], "limit": 5, "mode": "lax"}, []),
        ({"order": {"symbol": {"$secret": "which"}}, "limit": {"$secret": "most"}}, []),
        ({"limit": 0}, ["limit"]),
        ({"mode": "other"}, ["mode"]),
        ({"prices": ["x"]}, ["prices[0]"]),
        ({"order": {"side": "hold"}}, ["order", "order.side"]),
        ({"lmit": 5, "ordr": 1}, ["lmit", "ordr"]),
        ({"order": {"symbol": "IBM", "side": "sell", "limit": 3}}, ["order.limit"]),
    ],
)
def test_config_faults_follow_declared_schema(config: dict[str, Any], paths: list[str]) -> None:
    """By the same check as the servers make."""
    schema = risk_check.declaration().config_schema_json

    assert json_schema.schema_fault(schema) is None
    assert sorted(fault.path for fault in json_schema.faults(schema, config)) == paths


def test_defaults_are_in_the_config_schema() -> None:
    properties = json.loads(risk_check.declaration().config_schema_json)["properties"]

    assert (properties["limit"]["default"], properties["mode"]["default"]) == (100, "strict")
    assert "default" not in properties["order"]


def test_single_output_declares_schema_of_its_type() -> None:
    @node("when")
    async def when() -> list[date]:
        return []

    @node("own")
    async def own() -> object:
        return 1

    assert json.loads(when.declaration().outputs[0].schema_json)["items"]["format"] == "date"
    assert own.declaration().outputs[0].name == "output"
    assert own.declaration().outputs[0].schema_json == ""


def test_node_that_takes_whole_config_allows_any_keys() -> None:
    @node("free")
    async def free(config: dict[str, Any], window: int = 1) -> None: ...

    schema = free.declaration().config_schema_json

    assert json_schema.faults(schema, {"other": 1}) == []
    assert [fault.path for fault in json_schema.faults(schema, {"window": "x"})] == ["window"]
    assert [handle.name for handle in free.declaration().inputs] == ["window"]


async def test_node_is_callable_like_its_function() -> None:
    @node("double")
    def double(value: int) -> int:
        """Twice the value."""
        return 2 * value

    assert double(4) == 8
    assert (await risk_check(None, Order("IBM"), [])).values == {"accepted": Order("IBM")}  # type: ignore[arg-type]
    assert (double.__doc__, double.is_async, risk_check.is_async) == (
        "Twice the value.",
        False,
        True,
    )
    assert repr(double).startswith("<node double: test_node_is_callable_like_its_function")


def test_partials_methods_and_callable_objects_can_be_nodes() -> None:
    class Scale:
        async def __call__(self, value: float) -> float:
            return value

        def twice(self, number: float) -> float:
            return 2 * number

    def scale(value: float, factor: float) -> float:
        return factor * value

    partial = node("half")(functools.partial(scale, factor=0.5))
    instance = node("scale")(Scale())

    assert [(handle.name, handle.required) for handle in partial.declaration().inputs] == [
        ("value", True),
        ("factor", False),
    ]
    assert instance.is_async
    assert [handle.name for handle in instance.declaration().inputs] == ["value"]
    assert [handle.name for handle in node("twice")(Scale().twice).declaration().inputs] == ["number"]


def aliases(statements: str) -> dict[str, Any]:
    """Return what `type` statements define; Python 3.11 cannot read them."""
    if sys.version_info < (3, 12):
        pytest.skip("`type` statements are new in Python 3.12")
    names: dict[str, Any] = {"Context": Context, "Gather": Gather}
    exec(statements, names)
    return names


async def test_alias_means_what_it_stands_for() -> None:
    def total(cycle: Any, prices: Any, config: Any) -> Any:
        return [cycle.flow_id, sum(prices), config]

    names = aliases(
        "type Cycle = Context; type Many[T] = Gather[T]; type Prices = Many[int]; type Config = dict[str, int]"
    )
    total.__annotations__ = {"cycle": names["Cycle"], "prices": names["Prices"], "config": names["Config"]}
    declared = node("total")(total)

    assert [(handle.name, handle.gather) for handle in declared.declaration().inputs] == [("prices", True)]
    assert (await run_node(declared, prices=[1, 2], config={"limit": 3})).output == ["test", 3, {"limit": 3}]


async def test_alias_that_contains_itself_can_be_returned_but_not_taken() -> None:
    def give() -> Any:
        return [1, [2]]

    def take(tree: Any) -> None: ...

    give.__annotations__["return"] = take.__annotations__["tree"] = aliases("type Tree = int | list[Tree]")["Tree"]
    declared = node("give")(give)

    assert declared.declaration().outputs[0].schema_json == ""
    assert (await run_node(declared)).output == [1, [2]]
    with pytest.raises(NodeDefinitionError, match="because it is an alias that contains itself; use Any"):
        node("take")(take)


class Unreadable:
    """A type that JSON knows nothing of."""


def test_invalid_node_is_refused_with_reason() -> None:
    def several(*values: int) -> None: ...
    def by_position(value: int, /) -> None: ...
    def method(self: Any, value: int) -> None: ...
    def private(_value: int) -> None: ...
    def unannotated(ctx, value: int) -> None: ...  # type: ignore[no-untyped-def]
    def foreign(value: Unreadable) -> None: ...
    def later(value: "NotHere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def plain() -> None: ...
    def twice(ctx: Context, again: Context) -> None: ...

    async def generator() -> AsyncIterator[int]:
        yield 1

    cases: list[tuple[Any, dict[str, Any], str]] = [
        (several, {}, "parameter *values: int cannot be filled by name"),
        (by_position, {}, "cannot be filled by name"),
        (method, {}, "a node is a function, or a method of an object that exists: node(...)(Thing().method)"),
        (unannotated, {}, "parameter ctx would be an input; for the context, write ctx: Context"),
        (private, {}, "parameter _value cannot be a handle"),
        (foreign, {}, "use Any, numbers, str, list, dict"),
        (later, {}, "name 'NotHere' is not defined; annotations are read when the node is declared"),
        (generator, {}, "a generator cannot be a node"),
        (risk_check, {}, "it is already a node"),
        (twice, {}, "parameters ctx and again are both the Context: keep one of them"),
        (plain, {"process": "yes"}, "process must be True or False, not 'yes'"),
        (plain, {"eager": 1}, "eager must be True or False, not 1"),
        (plain, {"description": 5}, "description must be text, not 5"),
        (plain, {"cache": 5}, "cache: it must be the name of a cache, or a Cache, not a number"),
        (Unreadable, {}, "decorate a function"),
        (plain, {"outputs": ["a", "a"]}, "outputs has a handle twice: a, a"),
        (plain, {"outputs": ["a b"]}, 'output handle "a b" must begin with'),
        (
            plain,
            {"retries": 3},
            "@node takes no retries; retries, time limits and the like are said where the node is used",
        ),
        (plain, {"outputs": "buy"}, 'outputs must be a list of handles: outputs=["buy"]'),
        (plain, {"outputs": ["buy", 2]}, 'outputs must be a list of handles such as ["buy", "sell"], not [\'buy\', 2]'),
        (plain, {"outputs": 2}, 'outputs must be a list of handles such as ["buy", "sell"], not 2'),
        (plain, {"version": 2}, 'version must be text of at most 64 characters, such as "2", not 2'),
    ]
    for function, options, reason in cases:
        with pytest.raises(NodeDefinitionError) as refused:
            node("x", **options)(function)
        assert reason in str(refused.value)
        assert str(refused.value).startswith('node "x"')


@pytest.mark.parametrize(
    ("outputs", "returns", "message"),
    [
        (
            ["x", "y"],
            int,
            "a node with several outputs returns Emit(x=..., y=...), and this one says it returns int",
        ),
        ([], str, "it says that it returns str, and outputs=[] that it emits nothing"),
        (["x", "y"], Emit, ""),
        (["x", "y"], Emit | Wait, ""),
        (["x", "y"], Any, ""),
        ([], None, ""),
    ],
)
def test_return_annotation_must_fit_number_of_outputs(outputs: list[str], returns: Any, message: str) -> None:
    def decide() -> Any: ...

    decide.__annotations__["return"] = returns
    if not message:
        assert node("decide", outputs=outputs)(decide).outputs == tuple(outputs)
        return
    with pytest.raises(NodeDefinitionError) as refused:
        node("decide", outputs=outputs)(decide)
    assert str(refused.value).endswith(f": {message}")


def test_invalid_node_type_name_is_refused() -> None:
    def plain() -> None: ...

    with pytest.raises(NodeDefinitionError, match='node type "a b" must begin'):
        node("a b")(plain)
    with pytest.raises(NodeDefinitionError, match="needs the name of the node type"):
        node(plain)  # type: ignore[arg-type]


def test_version_depends_on_given_version_and_signature() -> None:
    def first(x: int) -> int:
        """One."""
        return x

    def same(x: int) -> int:
        """Other words."""
        return x + 1

    def other(x: float) -> float:
        return x

    versions = [node("n", version=given)(function).version for given in ("", "2") for function in (first, same, other)]
    assert versions[0] == versions[1]
    assert len(set(versions)) == 4
    assert versions[3].startswith("2+")
    assert node("n")(first).declaration().version == versions[0]


def test_node_offers_its_cache() -> None:
    offer = node("n", cache=Cache("mine", scope="global", ttl="5m"))(lambda x: x).offer()
    assert (offer.node_type, offer.cache.name, offer.cache.ttl.seconds) == ("n", "mine", 300)
    assert node("n", cache="screening")(lambda x: x).offer().cache.name == "screening"
    assert not node("n")(lambda x: x).offer().HasField("cache")
    with pytest.raises(NodeDefinitionError, match='cache: "soon" is not a length of time'):
        node("n", cache=Cache("mine", ttl="soon"))(lambda x: x)
    with pytest.raises(NodeDefinitionError, match="version must be text of at most 64 characters"):
        node("n", version="x" * 65)(lambda x: x)


@dataclass
class Smoothing:
    """A config with a field of its own."""

    window: int = 5


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"one": {"windw": 9}}, "one.windw"),
        ({"many": [{"window": 9}, {"windw": 9}]}, "many[1].windw"),
        ({"perhaps": {"windw": 9}}, "perhaps"),
    ],
)
def test_unknown_field_within_config_is_a_fault(config: dict[str, object], path: str) -> None:
    @node("smooth")
    def smooth(one: Smoothing, many: list[Smoothing], perhaps: Smoothing | None = None) -> None: ...

    declared = smooth.declaration()
    assert [fault.path for fault in json_schema.faults(declared.config_schema_json, config)] == [path]
    assert all("additionalProperties" not in handle.schema_json for handle in declared.inputs)
