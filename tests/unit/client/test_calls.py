"""What the client does when a server is away, and the exceptions it raises for servers' errors."""

import asyncio
import gc
import math
import pickle
import socket
import weakref
from collections.abc import Awaitable

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2

from tests.unit.client.fake_scheduler import Ending
from tests.unit.client.fake_stack import FakeStack
from tests.unit.client.refusal import AWAY, Refusal
from tests.waiting import until
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client import (
    Aborted,
    Addresses,
    Client,
    Conflict,
    Exhausted,
    InvalidInput,
    NotFound,
    ServerFault,
    TimedOut,
    TradewindError,
    Unavailable,
    Unreachable,
    WrongStatus,
)
from tradewind.client.refusals import error_from
from tradewind.tls import TlsError, TlsFiles, channels

_LATER = error_details_pb2.RetryInfo(retry_delay=Duration(nanos=250_000_000))
_STATUS = error_details_pb2.PreconditionFailure(
    violations=[error_details_pb2.PreconditionFailure.Violation(subject="flows/momentum")]
)


async def test_call_is_repeated_while_server_is_unavailable(client: Client, stack: FakeStack) -> None:
    stack.scheduler.refusals.extend([AWAY, Refusal(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"), None])

    run = await client.run_flow("momentum")

    assert run.cycle == 0
    requests = [request for request in stack.scheduler.requests if isinstance(request, pb.RunFlowRequest)]
    assert len(requests) == 3
    assert len({request.request_id for request in requests}) == 1


async def test_call_cancelled_by_stopping_server_is_repeated(client: Client, stack: FakeStack) -> None:
    stack.scheduler.refusals.extend([Refusal(grpc.StatusCode.CANCELLED), None])

    assert (await client.get_flow("momentum")).flow.flow_id == "momentum"
    assert stack.scheduler.count(pb.GetFlowRequest) == 2


def test_stream_ended_while_written_counts_as_unavailable() -> None:
    """gRPC has then lost the reason, and the server gives it again."""
    nothing = grpc.aio.Metadata()
    lost = grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, nothing, nothing, "Internal error from Core")
    assert type(error_from(lost, "gate:7700", "StreamRuns")) is Unavailable
    other = grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, nothing, nothing, "out of luck")
    assert type(error_from(other, "gate:7700", "StreamRuns")) is ServerFault


async def test_two_calls_have_different_request_ids(client: Client, stack: FakeStack) -> None:
    await client.run_flow("momentum")
    await client.run_flow("momentum")

    assert len({request.request_id for request in stack.scheduler.requests}) == 2  # type: ignore[attr-defined]


async def test_generated_request_id_is_remembered_while_call_may_be_repeated(stack: FakeStack) -> None:
    """This is for ids that the client makes up; a user's id is remembered for as long as the server remembers any."""
    async with Client(stack.address, timeout=20, patience=30) as client:
        await client.run_flow("momentum", wait=40)
        await client.run_flows(["momentum"], wait=40)
        await client.run_flow("momentum", request_id="order-17")

    run, runs, named = stack.scheduler.requests
    assert isinstance(run, pb.RunFlowRequest)
    assert isinstance(runs, pb.RunFlowsRequest)
    for lifetime in (run.remember_for, runs.remember_for):
        assert (20 + 40) + 30 + (20 + 40) < lifetime.ToSeconds() < 3600
    assert not named.HasField("remember_for")


@pytest.mark.parametrize("patience", [10, math.inf])
async def test_call_succeeds_once_server_starts(stack: FakeStack, patience: float) -> None:
    port = int(stack.address.rpartition(":")[2])
    await stack.stop()
    async with Client(stack.address, patience=patience) as client:
        asking = asyncio.ensure_future(client.get_flow("momentum"))
        await asyncio.sleep(0)
        await stack.start(port)

        assert (await asking).flow.flow_id == "momentum"


async def test_error_names_the_server_that_was_called() -> None:
    addresses = Addresses("localhost:1", "localhost:2", "localhost:3", "localhost:4", "localhost:5")
    async with Client(addresses=addresses, patience=0) as client, client.receive_due("reports") as due:
        calls: dict[str, list[Awaitable[object]]] = {
            addresses.scheduler: [client.get_flow("momentum"), client.run_flow("momentum")],
            addresses.registry: [client.get_worker("w1"), anext(aiter(client.list_workers()))],
            addresses.node_task_manager: [client.submit_batch("noop", [{}]), anext(client.watch_task("task:1"))],
            addresses.trigger: [client.get_trigger("reports", "nightly"), anext(due)],
            addresses.access: [client.who_am_i(), client.log_in()],
        }
        for address, calls_of_server in calls.items():
            for call in calls_of_server:
                with pytest.raises(Unreachable) as caught:
                    await call
                assert caught.value.address == address


async def test_unreachable_server_fails_call_at_once_without_patience(stack: FakeStack) -> None:
    await stack.stop()
    async with Client(stack.address, patience=0) as client:
        with pytest.raises(Unreachable, match=f"cannot reach {stack.address}: [Cc]onnection refused$") as caught:
            await client.get_flow("momentum")

    copied = pickle.loads(pickle.dumps(caught.value))
    assert caught.value.address == copied.address == stack.address
    assert str(copied) == str(caught.value)


async def test_server_that_hangs_is_told_from_one_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        async with Client(address, patience=0) as client:
            with pytest.raises(
                Unreachable, match=f"^cannot reach {address}: it takes connections but does not answer:"
            ):
                await client.get_flow("momentum")


async def test_call_fails_when_patience_runs_out(stack: FakeStack) -> None:
    await stack.stop()
    async with Client(stack.address, patience=0.3) as client:
        with pytest.raises(Unreachable):
            await client.run_flow("momentum")


async def test_wait_ready_returns_once_server_is_ready(stack: FakeStack) -> None:
    port = int(stack.address.rpartition(":")[2])
    await stack.stop()
    async with Client(stack.address) as client:
        with pytest.raises(Unavailable, match=f"{stack.address} is not ready after 0.1 s"):
            await client.wait_ready(0.1)
        waiting = asyncio.ensure_future(client.wait_ready(10))
        await stack.start(port)
        await waiting


@pytest.mark.parametrize(
    ("refusal", "kind", "reason"),
    [
        (Refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT"), InvalidInput, "INVALID_INPUT"),
        (Refusal(grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND"), NotFound, "FLOW_NOT_FOUND"),
        (Refusal(grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED"), Conflict, "REQUEST_ID_REUSED"),
        (Refusal(grpc.StatusCode.FAILED_PRECONDITION, "FLOW_DELETING"), WrongStatus, "FLOW_DELETING"),
        (Refusal(grpc.StatusCode.ABORTED, "OVERLAP_SKIPPED"), Aborted, "OVERLAP_SKIPPED"),
        (Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL"), Exhausted, "QUEUE_FULL"),
        (Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED), Exhausted, "TOO_LARGE"),
        (Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, "CALL_ENDED"), TimedOut, "CALL_ENDED"),
        (Refusal(grpc.StatusCode.INTERNAL, "INTERNAL"), ServerFault, "INTERNAL"),
        (Refusal(grpc.StatusCode.UNKNOWN), ServerFault, ""),
        (Refusal(grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN"), ServerFault, "METHOD_UNKNOWN"),
    ],
)
async def test_status_codes_map_to_exceptions(
    client: Client, stack: FakeStack, refusal: Refusal, kind: type[TradewindError], reason: str
) -> None:
    stack.scheduler.refusals.append(refusal)

    with pytest.raises(TradewindError) as caught:
        await client.get_flow("momentum")

    assert type(caught.value) is kind
    assert caught.value.reason == reason
    assert caught.value.message == "refused"


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        ("access.v1.AccessService/CreateToken", "this stack has no access service, so calls need no token; start one"),
        (
            "trigger.v1.TriggerService/SaveTrigger",
            "this address serves no trigger, or an older release of it: set TRADEWIND_TRIGGER_ADDRESS",
        ),
    ],
)
async def test_unknown_method_names_what_is_missing(client: Client, stack: FakeStack, method: str, advice: str) -> None:
    message = f"this server has no method /tradewind.api.{method}"
    stack.scheduler.refusals.append(Refusal(grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN", message))

    with pytest.raises(ServerFault, match=advice):
        await client.get_flow("momentum")


async def test_error_details_become_attributes(client: Client, stack: FakeStack) -> None:
    stack.scheduler.refusals.extend(
        [
            Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", details=[_LATER]),
            Refusal(grpc.StatusCode.FAILED_PRECONDITION, "WRONG_STATUS", details=[_STATUS]),
            Refusal(grpc.StatusCode.INTERNAL, "INTERNAL", metadata={"correlation_id": "c1"}),
        ]
    )

    with pytest.raises(Exhausted) as exhausted:
        await client.get_flow("momentum")
    with pytest.raises(WrongStatus) as wrong:
        await client.get_flow("momentum")
    with pytest.raises(ServerFault) as fault:
        await client.get_flow("momentum")

    assert exhausted.value.retry_after == 0.25
    assert wrong.value.subject == "flows/momentum"
    assert fault.value.correlation_id == "c1"


async def test_call_is_repeated_after_requested_delay(client: Client, stack: FakeStack) -> None:
    loop = asyncio.get_running_loop()
    stack.scheduler.refusals.append(Refusal(grpc.StatusCode.UNAVAILABLE, "DRAINING", details=[_LATER]))
    begun = loop.time()

    await client.get_flow("momentum")

    assert loop.time() - begun >= 0.25


async def test_call_times_out_without_answer(stack: FakeStack) -> None:
    stack.scheduler.ending = None
    async with Client(stack.address, timeout=1) as client:
        with pytest.raises(TimedOut, match=f"{stack.address} did not answer RunFlow in time"):
            await client._connection.call(
                client._connection.scheduler.RunFlow,
                pb.RunFlowRequest(flow_id="momentum", wait=Duration(seconds=30)),
            )
        await until(lambda: stack.scheduler.count(pb.RunFlowRequest) == 1, "the call arrived")


async def test_foreign_grpc_server_is_recognized(stack: FakeStack) -> None:
    """A server without our services answers UNIMPLEMENTED by itself."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with Client(f"127.0.0.1:{port}") as client:
        with pytest.raises(ServerFault, match="does not serve GetFlow: is it another program"):
            await client.get_flow("momentum")
    await server.stop(0)


def test_addresses_come_from_the_environment() -> None:
    environment = {"TRADEWIND_ADDRESS": "all:1", "TRADEWIND_REGISTRY_ADDRESS": "registry:2"}

    assert Addresses.find(None, {}) == Addresses(*["localhost:7700"] * 5)
    assert Addresses.find(None, environment) == Addresses("all:1", "registry:2", "all:1", "all:1", "all:1")
    assert Addresses.find("given:3", environment) == Addresses(*["given:3"] * 5)


async def test_concurrent_runs_share_one_stream(client: Client, stack: FakeStack) -> None:
    runs = await asyncio.gather(*(client.run_flow("momentum") for _ in range(50)))

    assert {run.cycle for run in runs} == set(range(50))
    assert stack.scheduler.streams == 1


async def test_each_run_is_a_call_without_run_stream(stack: FakeStack) -> None:
    async with Client(stack.address, run_stream=False) as client:
        runs = await asyncio.gather(*(client.run_flow("momentum") for _ in range(3)))

    assert len({run.cycle for run in runs}) == 3
    assert stack.scheduler.streams == 0


async def test_runs_are_sent_again_when_their_stream_breaks(client: Client, stack: FakeStack) -> None:
    stack.scheduler.ending = None
    runs = [asyncio.ensure_future(client.run_flow("momentum", wait=30)) for _ in range(3)]
    await until(lambda: len(stack.scheduler.cycles["momentum"]) == 3, "three cycles have begun")
    port = int(stack.address.rpartition(":")[2])
    await stack.stop()
    stack.scheduler.ending = Ending()
    await stack.start(port)

    assert len({(await run).cycle for run in runs}) == 3
    requests = [request for request in stack.scheduler.requests if isinstance(request, pb.RunFlowRequest)]
    assert (len(requests), len({request.request_id for request in requests})) == (6, 3)


async def test_unanswered_run_on_stream_times_out(stack: FakeStack) -> None:
    stack.scheduler.mute = True
    async with Client(stack.address, timeout=0.1, patience=0) as client:
        with pytest.raises(TimedOut, match="did not answer RunFlow in time"):
            await client.run_flow("momentum")


async def test_cancelled_run_does_not_disturb_others(client: Client, stack: FakeStack) -> None:
    stack.scheduler.ending = None
    given_up = asyncio.ensure_future(client.run_flow("momentum", wait=30))
    await until(lambda: stack.scheduler.cycles["momentum"], "its cycle has begun")
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)

    assert (await client.run_flow("momentum")).cycle == 1
    await stack.scheduler.end("momentum", 0)
    assert (await client.run_flow("momentum")).cycle == 2


@pytest.mark.parametrize("run_stream", [True, False])
async def test_closing_client_fails_pending_calls(stack: FakeStack, run_stream: bool) -> None:
    stack.scheduler.ending = None
    client = Client(stack.address, run_stream=run_stream)
    running = asyncio.ensure_future(client.run_flow("momentum", wait=30))
    await until(lambda: stack.scheduler.cycles["momentum"], "its cycle has begun")
    states = client.watch_flows("momentum")
    await anext(states)
    watching = asyncio.ensure_future(anext(states))
    await asyncio.sleep(0)
    await client.close()

    for ended in await asyncio.gather(running, watching, return_exceptions=True):
        assert (type(ended), str(ended)) == (RuntimeError, "this client is closed")


async def test_closed_client_refuses_calls(client: Client, stack: FakeStack) -> None:
    await client.get_flow("momentum")
    await client.close()
    await client.close()

    for use in (
        client.get_flow("momentum"),
        client.run_flow("momentum"),
        client.wait_ready(),
        client.submit_batch("model", [{}]),
        anext(client.watch_flows("momentum")),
        anext(client.watch_task("task:1")),
        anext(client.receive_due("reports")),
    ):
        with pytest.raises(RuntimeError, match="this client is closed"):
            await use
    assert len(stack.scheduler.requests) == 1


async def test_closed_client_releases_its_channel(client: Client) -> None:
    before = set(channels._open)
    await client.get_flow("momentum")
    (opened,) = map(weakref.ref, channels._open - before)
    await client.close()
    gc.collect()

    assert opened() is None


async def test_call_cancelled_while_client_closes_is_cancelled(stack: FakeStack) -> None:
    stack.scheduler.ending = None
    client = Client(stack.address, run_stream=False)
    running = asyncio.ensure_future(client.run_flow("momentum", wait=30))
    await until(lambda: stack.scheduler.cycles["momentum"], "its cycle has begun")
    running.cancel()
    await client.close()

    with pytest.raises(asyncio.CancelledError):
        await running


async def test_oversized_run_does_not_disturb_others(client: Client, stack: FakeStack) -> None:
    stack.scheduler.ending = None
    other = asyncio.ensure_future(client.run_flow("momentum", wait=30))
    await until(lambda: stack.scheduler.cycles["momentum"], "its cycle has begun")

    with pytest.raises(Exhausted, match="the request to RunFlow is too large; store large values elsewhere"):
        await client.run_flow("momentum", {"text": "x" * 5_000_000})

    await stack.scheduler.end("momentum", 0)
    assert (await other).cycle == 0


async def test_client_can_be_closed_while_first_run_begins(client: Client) -> None:
    first = asyncio.ensure_future(client.run_flow("momentum"))
    closing = asyncio.ensure_future(client.close())
    await closing

    with pytest.raises(RuntimeError, match="this client is closed"):
        await first


async def test_unreadable_certificate_is_reported_by_first_run(stack: FakeStack) -> None:
    async with Client(stack.address, credentials=TlsFiles(ca="/nowhere/ca.pem")) as client:
        with pytest.raises(TlsError, match=r"cannot read /nowhere/ca\.pem"):
            await client.run_flow("momentum")
