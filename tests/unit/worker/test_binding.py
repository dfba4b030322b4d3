"""How the parameters of a node are filled, and the messages when they cannot be."""

import json
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from tests.unit.worker.attempts import Bench
from tradewind.testing import NodeRun, run_node
from tradewind.worker import Context, Gather, node


@dataclass
class Order:
    """The type of a dataclass parameter."""

    symbol: str
    shares: int = 1


@node("average")
async def average(prices: list[float], window: int = 3, scale: float = 1.0) -> float:
    """Average of the last prices."""
    return scale * sum(prices[-window:]) / window


@node("everything")
async def everything(config: dict[str, Any], window: int = 1) -> dict[str, Any]:
    config["seen"] = True
    return {"config": config, "window": window}


async def test_inputs_override_run_inputs_override_config_override_defaults() -> None:
    given = {"window": 4, "scale": 2.0, "prices": [8, 8, 8, 8]}

    everywhere = await run_node(average, prices=[1, 2, 3], config=given, facts={"run_inputs_json": '{"window": 2}'})
    config_only = await run_node(average, config=given)
    defaults = await run_node(average, prices=[1, 2, 3])

    assert everywhere.output == 2.0 * (2 + 3) / 2
    assert config_only.output == 16.0
    assert defaults.output == 2.0


async def test_configs_and_run_inputs_are_coerced_but_inputs_are_not() -> None:
    lax = await run_node(average, prices=[4, 4], config={"window": "2"}, facts={"run_inputs_json": '{"scale": "0.5"}'})
    strict = await run_node(average, prices=["4"])

    assert lax.output == 2.0
    assert strict.error is not None
    assert (strict.error.code, strict.error.type) == ("NODE_ERROR", "InvalidInput")
    assert strict.error.message == "input prices[0]: expected float, got str"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"window": "many"}, "config.window: expected int, got str"),
        ({"prices": [1, None]}, "config.prices[1]: expected float, got null"),
        ({"widnow": 3}, 'config.widnow: node type average has no such parameter; did you mean "window"?'),
        ({"x": 3}, "config.x: node type average has no such parameter; choose from prices, scale, window"),
        ([1], "config must be a JSON object, is list"),
    ],
)
async def test_config_fault_names_its_path(config: Any, message: str) -> None:
    run = await run_node(average, prices=[1.0], facts={"config_json": json.dumps(config)})

    assert run.error is not None
    assert run.error.message == message


async def test_run_input_fault_names_its_path() -> None:
    run = await run_node(average, prices=[1.0], facts={"run_inputs_json": '{"window": {}, "others": 1}'})

    assert run.error is not None
    assert run.error.message == "run input.window: expected int, got object"


async def test_all_missing_values_are_named() -> None:
    @node("pair")
    async def pair(first: int, second: int, third: int = 0) -> int:
        return first + second + third

    run = await run_node(pair)

    assert run.error is not None
    assert run.error.code == "INPUT_MISSING"
    assert run.error.message.startswith("no value for first, second, and node type pair has no default: ")
    assert run.error.message.endswith("for an entry node, from the run's inputs")


async def test_unknown_input_handle_is_a_fault() -> None:
    run = await run_node(average, prices=[1.0], price=2)

    assert run.error is not None
    assert run.error.message == 'input price: node type average has no such handle; did you mean "prices"?'


async def test_gather_handle_gets_values_in_order_or_its_default() -> None:
    @node("join")
    async def join(values: Gather[int], extra: Gather[str] = ["none"]) -> list[Any]:  # noqa: B006
        return [values, extra]

    assert (await run_node(join, values=[3, 1, 2], extra=[])).output == [[3, 1, 2], []]
    assert (await run_node(join)).output == [[], ["none"]]
    assert (await run_node(join, config={"values": ["7"]})).output == [[7], ["none"]]


async def test_fault_in_gathered_values_names_which() -> None:
    @node("join")
    async def join(values: Gather[float]) -> float:
        return sum(values)

    run = await run_node(join, values=[1, 2, "3"])
    assert run.error is not None
    assert run.error.message == "input values[2]: expected float, got str"


async def test_constraints_of_a_gathered_list_are_declared_and_count() -> None:
    @node("pair")
    async def pair(values: Annotated[Gather[int], Meta(min_length=2)]) -> list[int]:
        return values

    assert (await run_node(pair, values=[1, 2])).output == [1, 2]
    for few in ([1], []):
        run = await run_node(pair, values=few)
        assert run.error is not None
        assert run.error.message == "input values: expected array of length >= 2"
    (handle,) = pair.declaration().inputs
    assert (handle.gather, handle.schema_json) == (True, '{"type":"integer"}')
    assert '"minItems":2' in pair.declaration().config_schema_json


async def test_gather_and_config_parameters_may_be_none_by_default() -> None:
    @node("join")
    async def join(values: Gather[int] | None = None, config: dict[str, Any] | None = None) -> list[Any]:
        return [values, config]

    assert [(handle.name, handle.gather) for handle in join.declaration().inputs] == [("values", True)]
    assert (await run_node(join, values=[3, 1], config={"free": 1})).output == [[3, 1], {"free": 1}]
    assert (await run_node(join)).output == [None, {}]


async def test_several_edges_into_plain_handle_arrive_as_list() -> None:
    """A flow may have been registered while no worker had declared the node type."""

    @node("join")
    async def join(values: Any) -> Any:
        return values

    several = await run_several_edges(join, ["1", '"two"'])
    assert several.output == [1, "two"]

    misfit = await run_several_edges(average, ["1.5", "2.5"], handle="window")
    assert misfit.error is not None
    assert misfit.error.message.startswith("input window: expected int, got array; 2 edges lead into this handle")


async def run_several_edges(target: Any, values_json: list[str], handle: str = "values") -> NodeRun:
    """Run a node with several values on a handle that does not gather."""
    async with Bench([target]) as bench:
        assignment = bench.assignment(target.type)
        assignment.inputs.add(handle=handle, values_json=values_json)
        return await bench.run(assignment)


async def test_values_are_converted_to_annotated_types() -> None:
    @node("order")
    async def order(order: Order, fallback: Order | None = None) -> Any:
        return [type(order).__name__, order.shares, fallback and fallback.symbol]

    run = await run_node(order, order={"symbol": "IBM"}, config={"fallback": {"symbol": "MSFT", "shares": "5"}})

    assert run.output == ["Order", 1, "MSFT"]


async def test_each_call_gets_its_own_copy_of_config() -> None:
    @node("hoarder")
    async def hoarder(items: list[int]) -> list[int]:
        items.append(1)
        return items

    assert [(await run_node(hoarder, config={"items": [0]})).output for _ in range(3)] == [[0, 1]] * 3
    runs = [await run_node(everything, config={"free": {"as": "air"}}) for _ in range(2)]
    assert [run.output for run in runs] == [{"config": {"free": {"as": "air"}, "seen": True}, "window": 1}] * 2


async def test_whole_config_can_be_taken_beside_single_keys() -> None:
    run = await run_node(everything, config={"window": "9", "other": None})

    assert run.output == {"config": {"window": "9", "other": None, "seen": True}, "window": 9}
    assert (await run_node(everything)).output == {"config": {"seen": True}, "window": 1}


async def test_config_parameter_of_another_type_is_ordinary() -> None:
    @node("named")
    async def named(config: str = "none") -> str:
        return config

    assert (await run_node(named, config={"config": "yes"})).output == "yes"


async def test_context_parameter_may_have_any_name() -> None:
    @node("facts")
    async def facts(me: Context, plus: int = 0) -> list[Any]:
        return [me.flow_id, me.cycle + plus]

    assert (await run_node(facts, facts={"flow_id": "momentum", "cycle": 7})).output == ["momentum", 7]


@dataclass(frozen=True)
class Leg:
    symbol: str
    shares: int = 100


class Pair(msgspec.Struct):
    first: Leg
    others: dict[str, list[Leg]] = {}


@dataclass
class Basket:
    pair: Pair
    note: str = field(default="", kw_only=True)
    tags: list[str] = field(default_factory=list)
    total: int = field(init=False, default=0)


async def test_defaults_of_dataclasses_are_passed_on() -> None:
    """msgspec reads them but writes only what an instance holds, so that others would not see them."""

    @node("pass_on", outputs=["basket"])
    def pass_on(basket: Basket) -> Basket:
        return basket

    first, others = {"symbol": "IBM"}, {"tech": [{"symbol": "AMZN", "shares": 7}, {"symbol": "X"}]}
    given = {"pair": {"first": first, "others": others}}
    runs = [await run_node(pass_on, basket=given), await run_node(pass_on, config={"basket": given})]

    others = {"tech": [{"symbol": "AMZN", "shares": 7}, {"symbol": "X", "shares": 100}]}
    whole = {"pair": {"first": {"symbol": "IBM", "shares": 100}, "others": others}, "note": "", "tags": []}
    assert [run.output for run in runs] == [whole, whole]


async def test_defaults_of_dataclasses_are_passed_on_by_gathering_handles() -> None:
    @node("gather", outputs=["legs"])
    def gather(legs: Gather[Leg]) -> list[Leg]:
        return legs

    run = await run_node(gather, legs=[{"symbol": "IBM"}])
    assert run.output == [{"symbol": "IBM", "shares": 100}]
