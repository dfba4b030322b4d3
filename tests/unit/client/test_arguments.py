"""Arguments of the wrong kind."""

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from math import inf, nan
from typing import Any
from uuid import UUID

import pytest

from tests.unit.client.fake_stack import FakeStack
from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client import Addresses, Client, FlowStatus, InvalidInput, SyncClient
from tradewind.flow import Flow, FlowError

Call = Callable[[Client], Awaitable[Any]]


@pytest.mark.parametrize("statuses", ["running", FlowStatus.RUNNING, ["running"], (FlowStatus.RUNNING,)])
async def test_single_status_is_accepted_in_place_of_list(client: Client, stack: FakeStack, statuses: Any) -> None:
    _ = [flow async for flow in client.list_flows(statuses=statuses)]

    assert stack.scheduler.last(pb.ListFlowsRequest).statuses == [flow_pb2.FLOW_STATUS_RUNNING]


@pytest.mark.parametrize("status", ["runing", "unknown"])
async def test_unknown_status_error_lists_known_ones(client: Client, status: str) -> None:
    with pytest.raises(ValueError, match=f'"{status}" is not one of registered, running, .*deleting$'):
        _ = [flow async for flow in client.list_flows(statuses=[status])]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda client: client.start_flow("f", at="2020-01-01"), TypeError, "'2020-01-01' is a str"),
        (lambda client: client.run_flow("f", inputs="month=2001-04"), ValueError, "got 'month=2001-04'"),
        (lambda client: client.run_flow("f", inputs=["2001-04"]), TypeError, "['2001-04'] is a list"),
        (lambda client: client.submit_task("t", "month=1"), ValueError, "parameters must be a dict or a JSON object"),
        (lambda client: client.submit_batch("t", [5]), InvalidInput, "parameters[0]: an item must map names to values"),
        (
            lambda client: client.submit_batch("t", [{}, {"at": inf}]),
            InvalidInput,
            "parameters[1]: an item is not JSON: an item.at is inf; give null",
        ),
        (lambda client: client.run_flow("f", {"n": nan}), ValueError, "inputs is not JSON: inputs.n is nan; give null"),
        (lambda client: client.run_flows([("f", {})]), TypeError, "('f', {}) is a tuple"),
        (lambda client: client.run_flows(None), TypeError, "requests must be a list; None is a NoneType"),
        (
            lambda client: client.submit_batch("t", 5),
            TypeError,
            "parameters must be a list, one for each item; 5 is",
        ),
        (lambda client: client.publish_event("e", [1]), TypeError, "payload must map names to values, as in"),
        (lambda client: client.run_flow(5), TypeError, "flow_id must be text; 5 is an int"),
        (lambda client: client.run_flow(UUID(int=1)), TypeError, "000001') is a UUID"),
        (lambda client: client.run_flow(Flow("z")), TypeError, "is a Flow; give its flow_id"),
        (lambda client: client.run_flow("\ud800"), ValueError, "flow_id: 'utf-8' codec"),
        (
            lambda client: client.flow("f").register({}, labels={"a": 1}),
            TypeError,
            '{"team": "risk"}; {\'a\': 1}',
        ),
        (lambda client: client.flow("f").register({}, labels=["a"]), ValueError, "labels must map names to text"),
        (
            lambda client: client.register_flow("f", None),
            TypeError,
            "path of a JSON or YAML file; none was given",
        ),
        (lambda client: client.register_flow("f", 5), TypeError, "or the path of a JSON or YAML file; 5 is an int"),
        (lambda client: client.register_flow(Flow("f"), {}), TypeError, "give a Flow alone"),
        (lambda client: client.get_cycle("f", "0"), TypeError, "cycle must be a whole number; '0' is a str"),
        (lambda client: client.get_cycle("f", 1.5), TypeError, "cycle must be a whole number; 1.5 is a float"),
        (lambda client: client.get_cycle("f", 2**70), ValueError, "cycle: Value out of range"),
        (lambda client: client.update_config(cache_ttl="9999999999999d"), ValueError, "at most 10 000 years"),
        (
            lambda client: client.rerun_cycle("f", from_nodes=[5]),
            TypeError,
            "must be a list, each item text; [5] is a list",
        ),
        (lambda client: client.run_flow("f", wait="soon"), ValueError, '"soon" is not a length of time'),
        (lambda client: client.run_flow("f", wait=[5]), TypeError, 'text such as "5m", or a timedelta, not a list'),
        (lambda client: client.update_flow("f", "interval=5s"), TypeError, 'as in {"interval": "5s"}; \'interval=5s\''),
        (lambda client: client.update_flow("f", {"intervall": "5s"}), ValueError, 'did you mean "interval"?'),
        (
            lambda client: client.update_flow("f", {"nodes.a.config": 4}),
            ValueError,
            "nodes.a.config: is part of the",
        ),
        (
            lambda client: client.update_flow("f", {"edges[0].target": "b"}),
            ValueError,
            "to change it, register the flow again",
        ),
        (lambda client: client.submit_task(5), TypeError, "5 is not a node type: give its name, or a function that"),
        (lambda client: client.submit_task("feed", retry=3), ValueError, "retry: must be a Retry, such as Retry(3)"),
        (lambda client: client.submit_task("feed", cache=3), ValueError, "cache: must be a Cache"),
        (lambda client: client.submit_batch("feed", {"x": 1}), TypeError, "{'x': 1} is a dict (submit_task takes"),
        (
            lambda client: client.submit_batch("feed", []),
            InvalidInput,
            "parameters: must have 1 to 10000 items",
        ),
        (lambda client: anext(client.list_logs("f", min_level="warn")), ValueError, '"warn" is not one of debug, in'),
        (lambda client: client.start_bulk_job("end", ["f"]), ValueError, '"end" is not one of'),
        (
            lambda client: client.save_trigger("t", queue="q", after=5, time_zone="Europe/Berlin"),
            ValueError,
            "time_zone goes only with cron",
        ),
        (
            lambda client: client.save_trigger("t", queue="q", cron="0 2 * * *", anchor=datetime.now(UTC)),
            ValueError,
            "anchor goes only with every",
        ),
        (
            lambda client: client.save_trigger("t", queue="q", on_finished="f", filter={"cycle": 1}),
            ValueError,
            "filter goes only with event",
        ),
        (
            lambda client: client.save_trigger("t", queue="q", event="e", statuses=["failed"]),
            ValueError,
            "statuses goes only with on_finished",
        ),
    ],
)
async def test_invalid_argument_error_says_what_is_expected(
    client: Client, call: Call, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        await call(client)

    assert message in str(caught.value)


async def test_all_faults_of_update_are_reported_at_once(client: Client) -> None:
    with pytest.raises(FlowError) as caught:
        await client.update_flow("f", {"interval": "abc", "overlap": "skp", "schedule.jitter": "5s", "nodes": []})

    assert str(caught.value).splitlines() == [
        "the changes have faults:",
        '  overlap: "skp" is not one of skip, allow, queue_one, queue_all, cancel_running',
        "  nodes: is part of the graph; to change it, register the flow again",
        '  interval: "abc" is not a length of time: give seconds, or text such as "500ms", "5s", "5m"',
    ]


async def test_update_does_not_offer_fields_of_the_graph(client: Client) -> None:
    with pytest.raises(FlowError, match="unknown field; known fields are interval, schedule, overlap, failure_policy"):
        await client.update_flow("f", {"foo": 1})


@pytest.mark.parametrize("wait", ["250ms", "0.25s", 0.25, timedelta(milliseconds=250), " 0.25 "])
async def test_duration_is_given_as_number_text_or_timedelta(client: Client, stack: FakeStack, wait: Any) -> None:
    await client.run_flow("momentum", wait=wait)

    assert stack.scheduler.last(pb.RunFlowRequest).wait.ToMilliseconds() == 250


async def test_client_options_accept_durations_in_any_form() -> None:
    async with Client("localhost:1", timeout="5s", patience=timedelta(minutes=1)) as client:
        assert client.patience == 60
        assert client._connection.timeout == 5


@pytest.mark.parametrize("kind", [Client, SyncClient])
def test_address_must_be_text(kind: Any) -> None:
    with pytest.raises(TypeError, match='an address must be text, such as "localhost:7700"; 7811 is an int'):
        kind(7811)


def test_plain_with_statement_points_to_async_with() -> None:
    with pytest.raises(TypeError, match=r"async with Client\(\).* or SyncClient"), Client():
        pass


async def test_flow_object_is_registered_under_its_own_id(client: Client, stack: FakeStack) -> None:
    await client.register_flow(Flow("prices", "5m"))

    request = stack.scheduler.last(pb.RegisterFlowRequest)
    assert request.flow_id == "prices"
    assert '"interval":"5m"' in request.weather_json.replace(" ", "")


async def test_given_id_overrides_id_of_flow_object(client: Client, stack: FakeStack) -> None:
    await client.register_flow("prices", Flow("others", "5m"))

    assert stack.scheduler.last(pb.RegisterFlowRequest).flow_id == "prices"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"address": "::1"}, ValueError, '"::1" is not the address of a server: give host:port'),
        ({"address": "localhost:99999"}, ValueError, '"localhost:99999" is not the address of a server'),
        ({"address": "localhost:0"}, ValueError, '"localhost:0" is not the address of a server'),
        ({"address": "one:7700,two:7700"}, ValueError, '"one:7700,two:7700" is not the address of a server'),
        ({"address": "me@host:7700"}, ValueError, '"me@host:7700" is not the address of a server'),
        ({"address": "lo cal:7700"}, ValueError, '"lo cal:7700" is not the address of a server'),
        ({"addresses": Addresses("a:1", "b:1", "c:1", access="d")}, ValueError, '"d" is not the address of a server'),
        ({"addresses": Addresses("a:1", "b:1", 5)}, TypeError, "an address must be text"),  # type: ignore[arg-type]
        ({"addresses": "localhost:7700"}, TypeError, "addresses must be Addresses, one for each server; 'localhost:7"),
        ({"address": "a:1", "addresses": Addresses("a:1", "b:1", "c:1")}, ValueError, "give either address or address"),
        ({"token": 5}, TypeError, "a token must be text, is of type int"),
        ({"token": "tw_05_abc\n"}, ValueError, "the token must be one line of ASCII characters, such as tw_05_..."),
        ({"token": "é"}, ValueError, "the token must be one line of ASCII characters"),
        (
            {"codec": "module:x"},
            TypeError,
            "a codec must have the methods encode and decode, which a value",
        ),
        ({"credentials": "ca.pem"}, TypeError, 'credentials must be TlsFiles, such as TlsFiles(ca="ca.pem"), or'),
        ({"timeout": 0}, ValueError, "timeout must be above 0"),
        ({"timeout": nan}, ValueError, "a length of time must not be negative, is nan s"),
        ({"timeout": inf}, ValueError, "a length of time must be at most 10 000 years, is inf s"),
        ({"user_id": 5}, TypeError, "user_id must be text; 5 is an int"),
    ],
)
@pytest.mark.parametrize("kind", [Client, SyncClient])
def test_invalid_argument_of_a_client_is_reported_at_once(
    kind: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        kind(**arguments)


async def test_token_of_the_environment_with_a_line_break_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_TOKEN", "tw_05_abc\n")

    with pytest.raises(ValueError, match=r"^TRADEWIND_TOKEN must be one line of ASCII characters.*\?$") as refused:
        Client()
    assert "abc" not in str(refused.value)


async def test_client_says_where_it_leads() -> None:
    client = Client("stack.example:7700")

    assert repr(client) == "Client('stack.example:7700')"
    client.patience = "5s"
    assert client.patience == 5
    assert repr(Client(addresses=Addresses("a:1", "b:1", "c:1"))).startswith("Client(addresses=Addresses(scheduler='a")
