"""What callers learn when a call fails, for every kind of call."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import StringValue
from google.rpc import error_details_pb2 as details_pb2
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from redis import exceptions as redis_errors
from structlog.testing import capture_logs

from tests.ports import free_port
from tests.rpc.server.echo_service import KINDS, NAME, EchoClient, EchoService, OnPurpose
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.server import faults, incidents
from tradewind.server.bootstrap import Server
from tradewind.server.interception import Context
from tradewind.server.redis import outages
from tradewind.server.redis.client import connect
from tradewind.server.redis.connections import StoreBusy


def raising(error: Exception) -> Callable[[str, Context], Awaitable[str]]:
    async def act(_text: str, _context: Context) -> str:
        raise error

    return act


async def failure(client: EchoClient, name: str = "UnaryUnary") -> tuple[grpc.aio.AioRpcError, Status]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.call(name, "text")
    status = rpc_status.from_call(caught.value)  # type: ignore[arg-type]
    assert status is not None
    return caught.value, status


def detail(status: Status, kind: type[Message]) -> Any:
    for packed in status.details:
        message = kind()
        if packed.Unpack(message):
            return message
    raise AssertionError(f"no {kind.__name__} in {status}")


async def drain_answers(call: Any) -> None:
    """Wait for all answers of a call of any kind."""
    if isinstance(call, AsyncIterable):
        async for _ in call:
            pass
    else:
        await call


@pytest.mark.parametrize("name", KINDS)
async def test_answers_come_through_the_interceptors(client: EchoClient, name: str) -> None:
    texts = await client.call(name, "one two")
    assert " ".join(texts) == "one two"


@pytest.mark.parametrize("name", KINDS)
async def test_fault_is_reported_with_its_details(client: EchoClient, service: EchoService, name: str) -> None:
    violations = [faults.Violation("interval", "is missing"), faults.Violation("nodes[1].id", 'is "é"')]
    service.act = raising(faults.InvalidInput(violations))
    error, status = await failure(client, name)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "interval: is missing (and 1 more)"
    info = detail(status, details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == ("INVALID_INPUT", "tradewind")
    reported = [(each.field, each.description) for each in detail(status, details_pb2.BadRequest).field_violations]
    assert reported == [("interval", "is missing"), ("nodes[1].id", 'is "é"')]


@pytest.mark.parametrize("name", KINDS)
async def test_unknown_exception_leaks_no_details(client: EchoClient, service: EchoService, name: str) -> None:
    service.act = raising(KeyError("a secret thing"))
    with capture_logs() as logs:
        error, status = await failure(client, name)
    assert error.code() is grpc.StatusCode.INTERNAL
    correlation_id = detail(status, details_pb2.ErrorInfo).metadata["correlation_id"]
    assert correlation_id in str(error.details())
    assert "secret" not in f"{error.details()} {status}"
    entry = next(log for log in logs if log["event"] == "call_failed")
    assert entry["correlation_id"] == correlation_id
    assert entry["exc_info"]


FAULTS: list[tuple[Exception, grpc.StatusCode, str]] = [
    (faults.NotFound("flow", "momentum"), grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND"),
    (faults.Conflict("RUN_CONFLICT", "another run"), grpc.StatusCode.ALREADY_EXISTS, "RUN_CONFLICT"),
    (faults.Aborted("VERSION_CONFLICT", "changed"), grpc.StatusCode.ABORTED, "VERSION_CONFLICT"),
    (
        faults.FailedPrecondition("WRONG_STATUS", "is stopped", "flows/a"),
        grpc.StatusCode.FAILED_PRECONDITION,
        "WRONG_STATUS",
    ),
    (faults.Exhausted("QUEUE_FULL", "full", 2.5), grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL"),
    (faults.Unavailable("PEER_UNAVAILABLE", "away"), grpc.StatusCode.UNAVAILABLE, "PEER_UNAVAILABLE"),
    (redis_errors.ConnectionError("host x refused"), grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"),
    (redis_errors.TimeoutError("slow"), grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"),
    (redis_errors.BusyLoadingError("loading"), grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"),
    (redis_errors.MasterDownError("down"), grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"),
    (redis_errors.SlotNotCoveredError("slot"), grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"),
    (redis_errors.OutOfMemoryError("oom"), grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"),
    (StoreBusy("busy"), grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"),
    (OnPurpose("changed meanwhile"), grpc.StatusCode.ABORTED, "VERSION_CONFLICT"),
]


@pytest.mark.parametrize(("error", "code", "reason"), FAULTS, ids=lambda value: type(value).__name__)
async def test_every_fault_has_its_code_and_reason(
    client: EchoClient, service: EchoService, error: Exception, code: grpc.StatusCode, reason: str
) -> None:
    service.act = raising(error)
    raised, status = await failure(client)
    assert (raised.code(), detail(status, details_pb2.ErrorInfo).reason) == (code, reason)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("OOM command not allowed", "the store is out of memory and accepts no writes"),
        (
            "MISCONF No space left on device",
            "the store cannot write to its disk, which may be full, and accepts no writes",
        ),
        ("NOREPLICAS Not enough", "the store has too few replicas and accepts no writes"),
        ("READONLY You can't write", "the store is read-only and accepts no writes"),
        ("NOPERM User a has no permissions", "the store does not permit this to its user"),
    ],
)
async def test_reason_why_store_refuses_is_reported(
    client: EchoClient, service: EchoService, embedded: RedisServer, answer: str, message: str
) -> None:
    store = embedded.connect()

    async def write(_text: str, _context: Context) -> str:
        return str(await store.call("a", "EVAL", f'return redis.error_reply("{answer}")', 1, "a"))

    service.act = write
    error, _ = await failure(client)
    await store.end()
    assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, message)


async def test_series_of_refused_calls_is_logged_in_two_lines(
    client: EchoClient, service: EchoService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "_OVER_AFTER_S", 0.5)
    service.act = raising(redis_errors.OutOfMemoryError("command not allowed"))
    message = outages.MESSAGES[redis_errors.OutOfMemoryError]
    with capture_logs() as logs:
        for _ in range(20):
            await failure(client)

        def is_over_logged() -> bool:
            return any(log["event"] == "calls_refused_no_more" for log in logs)

        await until(is_over_logged, "the log says that the series is over")
        await failure(client)
    louder = [log for log in logs if log["log_level"] != "debug"]
    assert [(log["event"], log["what"], log.get("times")) for log in louder] == [
        ("calls_refused", message, None),
        ("calls_refused_no_more", message, 20),
        ("calls_refused", message, None),
    ]
    assert louder[0]["error"] == "OutOfMemoryError: command not allowed"


async def test_calls_refused_because_a_peer_is_away_are_logged_once(client: EchoClient, service: EchoService) -> None:
    service.act = raising(faults.Unavailable("PEER_UNAVAILABLE", "the access service cannot be reached"))
    with capture_logs() as logs:
        for _ in range(3):
            await failure(client)
    louder = [(log["event"], log["what"]) for log in logs if log["log_level"] != "debug"]
    assert louder == [("calls_refused", "the access service cannot be reached")]


async def test_missing_object_is_named(client: EchoClient, service: EchoService) -> None:
    service.act = raising(faults.NotFound("node task", "a:1:0:b"))
    error, status = await failure(client)
    info = detail(status, details_pb2.ErrorInfo)
    assert (info.reason, dict(info.metadata)) == ("NODE_TASK_NOT_FOUND", {"node_task_id": "a:1:0:b"})
    assert error.details() == 'no node task "a:1:0:b"'


async def test_failed_precondition_names_its_subject(client: EchoClient, service: EchoService) -> None:
    service.act = raising(faults.FailedPrecondition("WRONG_STATUS", "flow a is stopped", "flows/a"))
    _, status = await failure(client)
    [violation] = detail(status, details_pb2.PreconditionFailure).violations
    assert (violation.type, violation.subject, violation.description) == (
        "WRONG_STATUS",
        "flows/a",
        "flow a is stopped",
    )


async def test_exhausted_fault_carries_retry_delay(client: EchoClient, service: EchoService) -> None:
    service.act = raising(faults.Exhausted("QUEUE_FULL", "the queue is full", retry_after_s=2.5))
    _, status = await failure(client)
    assert detail(status, details_pb2.RetryInfo).retry_delay.ToMilliseconds() == 2500


async def test_unreachable_store_is_reported_without_its_address(client: EchoClient, service: EchoService) -> None:
    store = connect(f"redis://127.0.0.1:{free_port()}")

    async def ping(_text: str, _context: Context) -> str:
        return str(await store.ping())

    service.act = ping
    with capture_logs() as logs:
        error, status = await failure(client)
    await store.end()
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert detail(status, details_pb2.RetryInfo).retry_delay.ToMilliseconds() == 1000
    assert "127.0.0.1" not in str(error.details())
    assert any("127.0.0.1" in log.get("error", "") for log in logs), logs


@pytest.mark.parametrize("name", KINDS)
async def test_unknown_method_is_unimplemented(client: EchoClient, name: str) -> None:
    method = client.method("unary_unary" if name.endswith("Unary") else "unary_stream", "Nothing")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drain_answers(method(StringValue(), timeout=10))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    status = rpc_status.from_call(caught.value)  # type: ignore[arg-type]
    assert status is not None
    assert detail(status, details_pb2.ErrorInfo).reason == "METHOD_UNKNOWN"
    assert caught.value.details() == f"this server has no method /{NAME}/Nothing"


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream", "stream_unary", "stream_stream"])
async def test_undecodable_request_is_an_invalid_argument(client: EchoClient, kind: str) -> None:
    name = kind.title().replace("_", "")
    method = getattr(client.channel, kind)(f"/{NAME}/{name}")
    rubbish: Any = iter([b"\xff\xff"]) if kind.startswith("stream") else b"\xff\xff"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drain_answers(method(rubbish, timeout=10))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await client.call("UnaryUnary", "still there") == ["still there"]


async def test_error_that_comes_while_the_first_message_is_written_ends_the_stream(client: EchoClient) -> None:
    method = client.method("stream_stream", "BothWays")
    for _ in range(30):
        call = method(timeout=5)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await drain_answers(call)
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.ABORTED, "rubbish")


@pytest.fixture(params=["as bytes", "in base64"])
async def frugal(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[EchoClient]:
    """A client that takes 8 KiB of metadata, where others refuse more at random; in base64 as without gRPC's C core."""
    options = [("grpc.absolute_max_metadata_size", 8192), ("grpc.http2.true_binary", int(request.param == "as bytes"))]
    async with grpc.aio.insecure_channel(server.address, options) as channel:
        yield EchoClient(channel)


async def test_violations_beyond_metadata_limit_of_clients_are_cut_and_counted(
    frugal: EchoClient, service: EchoService
) -> None:
    many = [faults.Violation(f"nodes[{n}].id", "must not be empty, " * 3) for n in range(5000)]
    service.act = raising(faults.InvalidInput(many))
    error, status = await failure(frugal)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    reported = detail(status, details_pb2.BadRequest).field_violations
    assert len(reported) > 50
    assert reported[0].field == "nodes[0].id"
    assert reported[-1].description == "and more, too many for one answer: fix these first"
    assert str(error.details()).endswith("(and 4999 more)")


@pytest.mark.parametrize("letter", ["é", "ж", "漢", "%"])
@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda text: faults.InvalidInput([faults.Violation("a", text)] * 50), grpc.StatusCode.INVALID_ARGUMENT),
        (lambda text: faults.FailedPrecondition("WRONG_STATUS", text, "a"), grpc.StatusCode.FAILED_PRECONDITION),
    ],
)
async def test_messages_in_any_script_fit_the_metadata_limit_of_clients(
    frugal: EchoClient,
    service: EchoService,
    make: Callable[[str], Exception],
    code: grpc.StatusCode,
    letter: str,
) -> None:
    service.act = raising(make(letter * 300))
    error, _ = await failure(frugal)
    assert error.code() is code
    assert letter * 100 in (error.details() or "")


@pytest.mark.parametrize("letter", ["x", "漢"])
@pytest.mark.parametrize(
    "make",
    [
        lambda name: faults.InvalidInput([faults.Violation(f"labels[{name}]", f'"{name}" is not a label')]),
        lambda name: faults.FailedPrecondition("LEASE_LOST", f'"{name}" is unknown', f"node_tasks/{name}"),
        lambda name: faults.NotFound("worker", name),
    ],
    ids=["violation", "precondition", "metadata"],
)
async def test_long_name_in_an_error_is_cut_and_hides_nothing_else(
    frugal: EchoClient, service: EchoService, make: Callable[[str], faults.Fault], letter: str
) -> None:
    fault = make(letter * 200_000)
    service.act = raising(fault)
    error, status = await failure(frugal)
    assert letter * 250 in (error.details() or "")
    info = detail(status, details_pb2.ErrorInfo)
    assert info.reason == fault.reason
    if isinstance(fault, faults.InvalidInput):
        (violation,) = detail(status, details_pb2.BadRequest).field_violations
        assert violation.field.startswith(f"labels[{letter * 100}")
        assert violation.description.startswith(f'"{letter * 250}')
    elif isinstance(fault, faults.FailedPrecondition):
        (broken,) = detail(status, details_pb2.PreconditionFailure).violations
        assert broken.subject.startswith(f"node_tasks/{letter * 100}")
    else:
        assert info.metadata["worker_id"].startswith(letter * 100)


async def test_client_that_hangs_up_is_not_logged_as_error(client: EchoClient, service: EchoService) -> None:
    with capture_logs() as logs:
        call = client.method("unary_stream", "Wait")(StringValue(value="x"))
        assert (await call.read()).value == "x"
        call.cancel()
        assert await client.call("UnaryUnary", "next") == ["next"]
    assert not [log for log in logs if log["log_level"] in ("warning", "error")]
