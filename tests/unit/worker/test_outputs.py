"""What a node may return, and the messages about anything else."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import pytest

from tests.arrays import Array
from tradewind.testing import run_node
from tradewind.worker import Context, Emit, node
from tradewind.worker.errors import NodeFault
from tradewind.worker.outputs import MAX_OUTPUT_BYTES, encode_outputs


@dataclass(frozen=True)
class Trade:
    symbol: str
    price: Decimal


class Model:
    """Yields a plain dict on request, as pydantic's models do."""

    def model_dump(self, mode: str) -> dict[str, str]:
        return {"mode": mode}


class Day(date):
    """As pendulum's."""


class Timestamp(datetime):
    """As pandas' and pendulum's."""


class NotATime(datetime):
    """As pandas' NaT."""

    def __ne__(self, other: object) -> bool:
        return True

    def __str__(self) -> str:
        return "NaT"


class Timedelta(timedelta):
    """As pandas'."""


class Symbol(str):
    """Text with a name."""


class Euros(float):
    """A number with a unit."""


class Cast:
    """Has a type of numpy's whose values can be listed well only as another type; `listed` is what it lists itself."""

    def __init__(self, dtype: str, listed: Any = None, **casts: Any) -> None:
        self.dtype = dtype
        self.listed = self if listed is None else listed
        self.casts = casts

    def tolist(self) -> Any:
        return self.listed

    def astype(self, dtype: Any) -> Array:
        return Array(self.casts[dtype if isinstance(dtype, str) else dtype.__name__])


class DataFrame:
    """Has rows and columns, as pandas' has."""


class NAType:
    """The type of what is missing in pandas."""


DAY = {"datetime64[us]": datetime(2010, 3, 1)}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ("null", '"null"'),
        ({"a": None, "b": "nullable", "c": [1.5, {"d": None}]}, '{"a":null,"b":"nullable","c":[1.5,{"d":null}]}'),
        (Trade("IBM", Decimal("1.50")), '{"symbol":"IBM","price":"1.50"}'),
        (date(2010, 3, 1), '"2010-03-01"'),
        (PurePosixPath("models/7.npy"), '"models/7.npy"'),
        ((1, 2), "[1,2]"),
        ("€", '"€"'),
        (Array(1.0, 2.0), "[1.0,2.0]"),
        (Model(), '{"mode":"json"}'),
        (Day(2010, 3, 1), '"2010-03-01"'),
        (Timestamp(2010, 3, 1, 9, 30, tzinfo=UTC), '"2010-03-01T09:30:00Z"'),
        (Timedelta(minutes=1), '"PT60S"'),
        ([Symbol("IBM"), Euros(1.5)], '["IBM",1.5]'),
        (Cast("datetime64[ns]", [1_267_401_600_000_000_000], **DAY), '["2010-03-01T00:00:00"]'),
        (Cast("datetime64[ps]", [1_267_401_600_000_000_000_000], **DAY), '["2010-03-01T00:00:00"]'),
        (Cast("datetime64[ns, UTC]", [Timestamp(2010, 3, 1)]), '["2010-03-01T00:00:00"]'),
        (Cast("datetime64[D]", [None]), "[null]"),
        (Cast("float128", float=1.5), "[1.5]"),
    ],
)
def test_single_output_is_return_value_as_json(value: Any, text: str) -> None:
    assert encode_outputs(value, ["output"]) == [("output", text)]


def test_emit_names_outputs_by_handle() -> None:
    assert encode_outputs(Emit(sell=None, buy=1), ["buy", "sell", "hold"]) == [("sell", "null"), ("buy", "1")]
    assert encode_outputs(Emit(), ["buy", "sell"]) == []
    assert encode_outputs(Emit(output=3), ["output"]) == [("output", "3")]
    assert encode_outputs(Emit(self=3), ["self"]) == [("self", "3")]
    assert encode_outputs(None, []) == []
    assert (Emit(a=1), repr(Emit(a=1))) == (Emit(a=1), "Emit(a=1)")
    with pytest.raises(TypeError, match=r"Emit\(\*\*outputs\) for a dict"):
        Emit({"a": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "the output is not JSON: output is nan; give null or leave it out"),
        (
            {"a": [1, None, float("-inf")]},
            "the output is not JSON: output.a[2] is -inf; give null or leave it out",
        ),
        (
            Array(float("nan")),
            "the output is not JSON: output[0] is nan; give null or leave it out",
        ),
        (Euros("nan"), "the output is not JSON: output is nan; give null or leave it out"),
        (NotATime(2010, 3, 1), "the output is not JSON: NaT is not a time; give null or leave it out"),
        (object(), "the output is not JSON: a value of type object cannot be written as JSON"),
        (
            DataFrame(),
            'the output is not JSON: a value of type DataFrame cannot be written as JSON; give its to_dict("records")',
        ),
        (
            [NAType()],
            "the output is not JSON: output[0]: a value of type NAType cannot be written as JSON; give null or leave "
            "it out",
        ),
        (
            {"fits": [{"a": 1}, {"a": 1, "b": (2, object())}]},
            "the output is not JSON: output.fits[1].b[1]: a value of type object cannot be written as JSON",
        ),
        ({"a": {(1, 2): 3}}, "the output is not JSON: output.a: the keys of an object must be text or numbers, not a"),
        ({(1, 2): 3}, "the output is not JSON: the keys of an object must be text or numbers, not a tuple"),
        ({None: 3}, "the output is not JSON: the keys of an object must be text or numbers, not a NoneType"),
        ({Trade("IBM", Decimal(1)): 3}, "the output is not JSON: the keys of an object must be text or numbers, not a"),
        (
            MappingProxyType({"a": 1}),
            "the output is not JSON: a value of type mappingproxy cannot be written as JSON; give a dict of it",
        ),
        (Trade, "the output is not JSON: a value of type type cannot be written as JSON"),
        (Cast("complex256"), "the output is not JSON: a value of type complex256 cannot be written as JSON"),
        (
            {"term": Cast("timedelta64[M]", 1)},
            "the output is not JSON: output.term: a value of type timedelta64[M] cannot be written as JSON: it has no",
        ),
        (Cast("datetime64[D]", [[10_000_000]]), "the output is not JSON: a value of type datetime64[D] cannot be"),
        (range(3), "the output is not JSON: a value of type range cannot be written as JSON; give a list of it"),
        ("\ud800", "the output is not JSON: 'utf-8' codec can't encode character '\\ud800'"),
    ],
)
def test_output_that_is_not_json_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(NodeFault) as refused:
        encode_outputs(value, ["output"])
    assert refused.value.code == "INVALID_OUTPUT"
    assert refused.value.message.startswith(reason)


def test_output_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(NodeFault, match=r"the output is not JSON: it is nested too deeply, or contains itself"):
        encode_outputs(endless, ["output"])


async def price() -> float:
    return 1.0


async def prices() -> AsyncIterator[float]:
    yield 1.0


HINT = "it is an awaitable: await it"


@pytest.mark.parametrize(("outputs", "message"), [(["output"], "the output is not JSON: "), ([], "coroutine; ")])
async def test_forgotten_await_is_hinted_at(outputs: list[str], message: str) -> None:
    plain = node("plain", outputs=outputs)(lambda: price())

    @node("forgetful", outputs=outputs)
    async def forgetful() -> Any:
        return price()

    for each, hint in ((plain, f"{HINT}, and declare the node with async def"), (forgetful, HINT)):
        error = (await run_node(each)).error
        assert error is not None
        assert error.message.endswith(message + hint)


async def test_forgotten_await_of_context_is_hinted_at() -> None:
    @node("forgetful")
    async def forgetful(ctx: Context) -> Any:
        return ctx.progress(10)

    error = (await run_node(forgetful)).error
    assert error is not None
    assert error.message == f"the output is not JSON: {HINT}"


def test_async_generator_hints_at_list() -> None:
    with pytest.raises(NodeFault, match="it is an async generator: emit a list of what it yields"):
        encode_outputs(prices(), ["output"])


@pytest.mark.parametrize(
    ("value", "handles", "reason"),
    [
        (1.5, ["buy", "sell"], "a node with several outputs returns Emit(buy=..., sell=...) with"),
        (None, ["buy", "sell"], "a node with several outputs returns Emit(buy=..., sell=...)"),
        (Emit(byu=1), ["buy", "sell"], 'the node has no output handle "byu"; did you mean "buy"?'),
        (Emit(other=1), ["buy", "sell"], 'the node has no output handle "other"; choose from buy, sell'),
        (3, [], "the node declares no outputs but returned a value of type int"),
    ],
)
def test_wrong_handles_are_refused(value: Any, handles: list[str], reason: str) -> None:
    with pytest.raises(NodeFault) as refused:
        encode_outputs(value, handles)
    assert refused.value.code == "INVALID_OUTPUT"
    assert refused.value.message.startswith(reason)


def test_total_size_of_outputs_is_limited() -> None:
    half = "x" * (MAX_OUTPUT_BYTES // 2 - 2)
    for value, handles in ((Emit(a=half, b=half), ["a", "b"]), ("x" * (MAX_OUTPUT_BYTES - 2), ["output"])):
        outputs = encode_outputs(value, handles)
        assert isinstance(outputs, list)
        assert [handle for handle, _ in outputs] == handles

    with pytest.raises(NodeFault) as refused:
        encode_outputs(Emit(a=half, b=half + "xx"), ["a", "b"])
    assert refused.value.code == "OUTPUT_TOO_LARGE"
    assert refused.value.message.startswith(
        "the outputs have 1048578 bytes of JSON together (b 524290 bytes, a 524288 bytes), at most 1048576 are allowed"
    )
    with pytest.raises(NodeFault, match="1048577 bytes"):
        encode_outputs("x" * (MAX_OUTPUT_BYTES - 1), ["output"])
