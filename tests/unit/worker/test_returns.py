"""A node must return the type that its function declares; otherwise this node fails, not the one after it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, Field, PositiveInt, field_serializer

from tests.arrays import Array
from tradewind.testing import run_node
from tradewind.worker import Emit, Wait, node
from tradewind.worker.errors import NodeFault
from tradewind.worker.returns import return_check


@dataclass
class Order:
    """A dataclass such as nodes return."""

    symbol: str
    shares: int = 1


@dataclass
class Limited(Order):
    """A subclass with an additional field."""

    limit: float = 0.0


class Total(msgspec.Struct, tag=True):
    amount: float


class Net(Total, tag=True):
    fee: float = 0.0


class Row(TypedDict):
    price: float


class Side(StrEnum):
    BUY = "buy"


class Tick(BaseModel):
    """A model that writes other names and texts than it reads."""

    price: float = Field(alias="last")
    day: date = date(2024, 1, 2)

    @field_serializer("day")
    def short(self, day: date) -> str:
        return f"{day:%d.%m.}"


def tick(price: float) -> Tick:
    return Tick(last=price)


def returning(annotation: Any, value: Any) -> Any:
    """Return a node that declares one type and returns a value of another."""

    def average() -> Any:
        return value

    average.__annotations__["return"] = annotation
    return node("average", outputs=["average"])(average)


@pytest.mark.parametrize(
    ("annotation", "value", "reason"),
    [
        (float, "abc", "expected float, got str; the function says it returns float"),
        (int, 1.5, "expected int, got float; the function says it returns int"),
        (float, None, "expected float, got null; the function says it returns float"),
        (float | Wait, "abc", "expected float, got str; the function says it returns float | Wait"),
        (list[float], [1, None], "expected float, got null; the function says it returns list[float]"),
        (Order, {"shares": 3}, "object missing required field symbol; the function says it returns Order"),
        (list[Order], [Order("A"), Order("B", "x")], "expected int, got str; the function says it returns list[Order]"),  # type: ignore[arg-type]
        (Row, {"price": "1"}, "expected float, got str; the function says it returns Row"),
        (Total, Order("A"), "object missing required field amount; the function says it returns Total"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, "expected int >= 0; the function says it returns Annotated"),
        (list[PositiveInt], Array(1, 0), "Input should be greater than 0; the function says it returns list[Annotated"),
        (
            list[Tick],
            [tick(1), 3],
            "Input should be a valid dictionary or instance of Tick; the function says it returns list[Tick]",
        ),
    ],
)
async def test_return_value_of_wrong_type_fails_node(annotation: Any, value: Any, reason: str) -> None:
    error = (await run_node(returning(annotation, value))).error

    assert error is not None
    assert error.code == "INVALID_OUTPUT"
    place, _, message = error.message.partition(": ")
    assert place.startswith("output average")
    assert message.startswith(reason)


async def test_type_fault_names_path_within_value() -> None:
    wrong = await run_node(returning(dict[str, list[Order]], {"a": [{"symbol": 1}]}))

    assert wrong.error is not None
    assert wrong.error.message == (
        "output average[...][0].symbol: expected str, got int; the function says it returns dict[str, list[Order]]"
    )


@pytest.mark.parametrize(
    ("annotation", "value", "emitted"),
    [
        (float, 1, 1),
        (list[int], (1, 2), [1, 2]),
        (list[float], Array(1.0, 2.0), [1.0, 2.0]),
        (list[PositiveInt], Array(1, 2), [1, 2]),
        (set[int], {1}, [1]),
        (Decimal, Decimal("1.50"), "1.50"),
        (str, Side.BUY, "buy"),
        (int, True, True),
        (date, datetime(2024, 1, 2), "2024-01-02T00:00:00"),
        (Order, Limited("A"), {"symbol": "A", "shares": 1, "limit": 0.0}),
        (Total, Net(1.0), {"type": "Net", "amount": 1.0, "fee": 0.0}),
        (dict[int, str], {1: "a"}, {"1": "a"}),
        (Tick, tick(2), {"price": 2.0, "day": "02.01."}),
        (list[Tick] | None, (tick(2),), [{"price": 2.0, "day": "02.01."}]),
    ],
)
async def test_return_value_of_declared_type_is_emitted_as_json(annotation: Any, value: Any, emitted: Any) -> None:
    assert (await run_node(returning(annotation, value))).output == emitted


@pytest.mark.parametrize("annotation", [None, Any, Emit, Emit | int, Wait | None, object, Array, Callable[[int], int]])
async def test_annotation_without_information_is_not_checked(annotation: Any) -> None:
    assert (await run_node(returning(annotation, "abc"))).output == "abc"


async def test_emitted_value_is_not_checked() -> None:
    assert (await run_node(returning(float, Emit(average="abc")))).output == "abc"


async def test_class_that_cannot_be_recreated_is_not_checked() -> None:
    @dataclass
    class Once:
        name: str

        def __post_init__(self) -> None:
            if self.name in made:
                raise LookupError
            made.append(self.name)

    made: list[str] = []
    assert (await run_node(returning(Once, Once("a")))).output == {"name": "a"}


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_checked_value_is_not_converted(asynchronous: bool) -> None:
    """The value is checked, but not converted."""
    check = return_check(float)
    assert check is not None
    check("output", 1, b"1")
    with pytest.raises(NodeFault):
        check("output", "1", b'"1"')

    if asynchronous:

        @node("whole")
        async def whole() -> float:
            return 1
    else:

        @node("whole")
        def whole() -> float:
            return 1

    assert repr((await run_node(whole)).output) == "1"
