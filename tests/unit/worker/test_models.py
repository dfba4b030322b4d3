"""pydantic models as parameters of nodes: read by pydantic, and declared with its schemas."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt, field_validator

from tradewind.server import json_schema
from tradewind.testing import run_node
from tradewind.worker import Gather, Node, node
from tradewind.worker.errors import NodeDefinitionError
from tradewind.worker.models import reader_of


class Tick(BaseModel):
    price: float
    on: date = date(2020, 1, 1)

    @field_validator("price")
    @classmethod
    def is_positive(cls, price: float) -> float:
        if price <= 0:
            raise ValueError(f"{price:g} is no price")
        return price


class Tree(BaseModel):
    """A model that contains its own type."""

    name: str
    below: list["Tree"] = []


class Buy(BaseModel):
    kind: Literal["buy"]
    shares: int


class Sell(BaseModel):
    kind: Literal["sell"]
    limit: float


@dataclass
class Quote:
    """A dataclass that contains a model."""

    tick: Tick
    symbol: str = "IBM"


@dataclass
class Order:
    """A dataclass that msgspec reads, as the type of a parameter without a model."""

    symbol: str


class Settings(BaseModel):
    """The model of a whole config."""

    model_config = ConfigDict(extra="forbid")

    window: int = 20
    fee: float


@node("mean")
async def mean(ticks: list[Tick], floor: Tick | None = None, order: Order | None = None) -> float:
    prices = [tick.price for tick in ticks if floor is None or tick.price >= floor.price]
    return sum(prices) / len(prices)


def declared_schema(declared: Node[..., Any]) -> str:
    schema = declared.declaration().config_schema_json
    assert json_schema.schema_fault(schema) is None
    return schema


async def error_of(target: Node[..., Any], **given: Any) -> str:
    error = (await run_node(target, **given)).error
    assert error is not None
    assert (error.code, error.type, error.non_retryable) == ("NODE_ERROR", "InvalidInput", True)
    return error.message


async def test_models_are_read_at_any_depth() -> None:
    @node("where")
    async def where(
        tick: Tick,
        named: dict[str, Tick],
        quote: Quote,
        side: Annotated[Buy | Sell, Field(discriminator="kind")] | None = None,
        number: Tick | int = 0,
        tree: Tree | None = None,
    ) -> Any:
        assert isinstance(quote.tick, Tick)
        return [tick.on.year, named["a"].price, quote.symbol, type(side).__name__, number, tree and tree.below[0].name]

    run = await run_node(
        where,
        tick={"price": 1, "on": "2024-02-29"},
        named={"a": {"price": 2}},
        quote={"tick": {"price": 3}},
        number=7,
        config={"side": {"kind": "sell", "limit": "1.5"}, "tree": {"name": "a", "below": [{"name": "b"}]}},
    )

    assert run.output == [2024, 2.0, "IBM", "Sell", 7, "b"]


@dataclass
class Limits:
    """A dataclass with a constraint, and no model."""

    share: Annotated[float, Field(gt=0, le=1)]


async def test_constraints_are_kept_without_model() -> None:
    @node("embed")
    async def embed(
        dims: Annotated[int, Field(ge=1, le=64)] = 8,
        batch: PositiveInt | None = None,
        name: Annotated[str, AfterValidator(str.upper)] = "",
        limits: Limits | None = None,
        weights: Gather[PositiveInt] = [],  # noqa: B006
    ) -> Any:
        return [dims, batch, name, limits and limits.share, weights]

    good = await run_node(embed, dims=64, weights=[1, 2], config={"batch": "2", "name": "a", "limits": {"share": 1}})
    assert good.output == [64, 2, "A", 1.0, [1, 2]]
    assert (await run_node(embed)).output == [8, None, "", None, []]
    assert await error_of(embed, dims=65) == "input dims: Input should be less than or equal to 64"
    assert await error_of(embed, weights=[1, 0]) == "input weights[1]: Input should be greater than 0"
    assert await error_of(embed, config={"batch": 0}) == "config.batch: Input should be greater than 0"
    assert await error_of(embed, config={"limits": {"share": 2}}) == (
        "config.limits.share: Input should be less than or equal to 1"
    )
    faults = json_schema.faults(declared_schema(embed), {"dims": 0, "batch": -1, "limits": {"share": 0}})
    assert sorted(fault.path for fault in faults) == ["batch", "dims", "limits"]


def test_field_as_default_is_refused_with_what_to_write() -> None:
    def take(dims: int = Field(8, ge=1)) -> None: ...

    with pytest.raises(NodeDefinitionError, match=r"dims has a Field as its default.*Annotated\[int, Field\(ge=1\)\]"):
        node("n")(take)


async def test_constraints_of_a_gathered_list_count() -> None:
    @node("pair")
    async def pair(values: Annotated[Gather[PositiveInt], Field(min_length=2)]) -> Any:
        return values

    assert (await run_node(pair, values=[1, 2])).output == [1, 2]
    few = "List should have at least 2 items after validation, not "
    assert await error_of(pair, values=[1]) == f"input values: {few}1"
    assert await error_of(pair) == f"input values: {few}0"
    assert await error_of(pair, config={"values": [1]}) == f"config.values: {few}1"


async def test_gathered_values_are_read_as_models() -> None:
    @node("last")
    async def last(ticks: Gather[Tick]) -> date:
        return ticks[-1].on

    assert (await run_node(last, ticks=[{"price": 1}, {"price": 2, "on": "2024-01-02"}])).output == "2024-01-02"
    assert await error_of(last, ticks=[{"price": 1}, {}]) == "input ticks[1].price: Field required"


async def test_emitted_models_are_read_by_next_node() -> None:
    @node("quoted")
    async def quoted() -> list[Tick]:
        return [Tick(price=2.5, on=date(2024, 1, 2))]

    emitted = (await run_node(quoted)).output
    assert (await run_node(mean, ticks=emitted)).output == 2.5


async def test_aliased_field_is_read_by_either_name() -> None:
    class Fill(BaseModel):
        price: float = Field(alias="px")

    @node("filled")
    async def filled() -> Fill:
        return Fill(px=1.5)

    @node("read")
    async def read(fill: Fill) -> float:
        return fill.price

    assert (await run_node(read, fill=(await run_node(filled)).output)).output == 1.5
    assert (await run_node(read, fill={"px": 2.5})).output == 2.5


async def test_all_faults_are_reported_with_paths_and_messages_of_pydantic() -> None:
    assert await error_of(mean, ticks=[{"price": "many"}, {"price": -1}]) == (
        "input ticks[0].price: Input should be a valid number, unable to parse string as a number; "
        "input ticks[1].price: Value error, -1 is no price"
    )
    assert await error_of(mean, ticks=[], config={"floor": {}}) == "config.floor.price: Field required"
    assert (await error_of(mean, ticks=[{}] * 8)).endswith("input ticks[4].price: Field required; and 3 more")


async def test_strict_model_reads_values_in_json_mode() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)

        on: date

    @node("strict")
    async def strict(given: Strict) -> int:
        return given.on.year

    assert (await run_node(strict, given={"on": "2024-01-02"})).output == 2024
    assert (await run_node(strict, config={"given": {"on": "2024-01-02"}})).output == 2024


async def test_each_call_gets_its_own_model() -> None:
    @node("grow")
    async def grow(tree: Tree) -> int:
        tree.below.append(Tree(name="new"))
        return len(tree.below)

    assert [(await run_node(grow, config={"tree": {"name": "a"}})).output for _ in range(2)] == [1, 1]


async def test_whole_config_is_read_as_model() -> None:
    @node("settled")
    async def settled(config: Settings) -> float:
        config.window += 1
        return config.window * config.fee

    @node("eased")
    async def eased(config: Tree = Tree(name="unused"), name: str = "") -> list[str]:  # noqa: B008
        return [config.name, name]

    assert [(await run_node(settled, config={"fee": "0.5"})).output for _ in range(2)] == [10.5, 10.5]
    assert await error_of(settled) == "config.fee: Field required"
    assert await error_of(settled, config={"fee": 1, "wndow": 3}) == "config.wndow: Extra inputs are not permitted"
    assert (await run_node(eased, config={"name": "both"})).output == ["both", "both"]
    secret = await run_node(settled, config={"fee": {"$secret": "fee"}}, secrets={"fee": "2"})
    assert secret.output == 42

    faults = json_schema.faults(declared_schema(settled), {"wndow": 3})
    assert [fault.path for fault in faults] == ["wndow", ""]
    assert [handle.name for handle in eased.declaration().inputs] == ["name"]
    assert [fault.path for fault in json_schema.faults(declared_schema(eased), {"name": 1, "other": 2})] == ["name"] * 2


def test_config_schema_combines_models_and_other_types() -> None:
    schema = declared_schema(mean)

    assert json_schema.faults(schema, {"ticks": [{"price": 1}], "floor": {"price": 2}, "order": {"symbol": "A"}}) == []
    faults = json_schema.faults(schema, {"ticks": [{"price": "x"}], "order": {"smybol": "A"}, "flor": 1})
    assert sorted(fault.path for fault in faults) == ["flor", "order", "ticks[0].price"]
    single = next(handle.schema_json for handle in mean.declaration().inputs if handle.name == "ticks")
    assert [fault.path for fault in json_schema.faults(single, [{"price": 1}, {}])] == ["[1]"]


def test_version_of_node_depends_on_fields_of_model() -> None:
    def version(model: Any) -> str:
        def take(x: list[model]) -> None: ...

        return node("n")(take).version

    class Later(Tick):
        volume: int = 0

    assert version(Tick) == version(Tick)
    assert version(Tick) != version(Later)


class Holder(msgspec.Struct):
    tick: Tick


class Place(msgspec.Struct):
    path: Path


class Rate(Enum):
    LOW = 0.5


class Foreign:
    """A type that JSON does not know."""


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (Path, "type Path cannot be read from JSON; use str, and make the Path in the node"),
        (list[Path], "type list[Path] cannot be read from JSON because of Path; use str,"),
        (Place, "type Place cannot be read from JSON because of Path; use str,"),
        (int | Path, "type int | Path cannot be read from JSON because of Path; use str,"),
        (object, "type object cannot be read from JSON; use Any"),
        (dict[str, complex], "type dict[str, complex] cannot be read from JSON because of complex; use list[float]"),
        (Callable[[int], int], "type Callable[[int], int] cannot be read from JSON because of Callable; use Any, num"),
        (list[Foreign], "type list[Foreign] cannot be read from JSON because of Foreign; use Any, numbers, str, list"),
        (list[Rate], "type list[Rate] cannot be read from JSON because of Rate; use an enum whose values are all text"),
        (
            list[int] | set[int],
            "cannot be read from JSON (Type unions may not contain more than one array-like (list, set, tuple) type "
            "- type `list[int] | set[int]` is not supported); use Any",
        ),
        (list[Holder], "cannot be read from JSON: Holder is a msgspec.Struct, which cannot hold pydantic models"),
    ],
)
def test_unreadable_type_is_refused_with_alternative(annotation: Any, reason: str) -> None:
    def take(x: Any) -> None: ...

    take.__annotations__["x"] = annotation
    with pytest.raises(NodeDefinitionError) as refused:
        node("n")(take)
    assert reason in str(refused.value)


def test_model_without_json_schema_is_refused_with_error_of_pydantic() -> None:
    class Opaque(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)

        foreign: Foreign

    def take(config: Opaque) -> None: ...

    with pytest.raises(NodeDefinitionError, match=r"config of type Opaque .* JSON: Cannot generate a JsonSch"):
        node("n")(take)


def test_pydantic_is_used_only_if_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reader_of(list[Tick]) is not None
    assert reader_of(list[Order]) is None
    assert reader_of(list[PositiveInt]) is not None
    monkeypatch.delitem(sys.modules, "pydantic")
    assert reader_of(list[PositiveInt]) is None
    assert reader_of(list[Tick]) is None


async def test_output_schema_of_models_matches_what_is_emitted() -> None:
    class Fill(BaseModel):
        shares: int = Field(alias="qty")
        limit: float | None = None

    @node("fill", outputs=["fills"])
    def fill(tick: Tick) -> list[Fill]:
        return [Fill(qty=2)]

    (output,) = fill.declaration().outputs
    emitted = (await run_node(fill, tick={"price": 1.0})).output
    assert emitted == [{"shares": 2, "limit": None}]
    assert json_schema.schema_fault(output.schema_json) is None
    assert json_schema.faults(output.schema_json, emitted) == []
    assert [fault.path for fault in json_schema.faults(output.schema_json, [{"shares": "many"}])] == ["[0].shares"]
