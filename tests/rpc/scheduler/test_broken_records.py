"""Records that somebody has changed by hand: calls that need one say which, and none says that the server fails."""

from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.rpc.scheduler.conftest import Client
from tests.rpc.scheduler.errors import refused
from tests.rpc.scheduler.test_backfills import backfill, backfill_request, ended
from tests.servers import RedisServer
from tradewind.api.scheduler.v1 import memory_pb2, scheduler_service_pb2
from tradewind.scheduler.stores.keys import Keys

KEYS = Keys()
METHODS = {
    method.name: method
    for method in scheduler_service_pb2.DESCRIPTOR.services_by_name["SchedulerService"].methods
    if not (method.client_streaming or method.server_streaming)
}
LAST = ("PauseFlow", "ResumeFlow", "StopFlow", "StartFlow", "DeleteFlow")
"""Calls that change what the others find."""
GIVEN: dict[str, Any] = {
    "flow_id": "f",
    "backfill_id": 1,
    "cycle": 0,
    "revision": 1,
    "from_revision": 1,
    "to_revision": 1,
    "node_id": "a",
    "set_json": '{"a": 1}',
    "weather_json": '{"interval": 60, "nodes": [{"id": "b", "type": "noop"}]}',
}


def request_of(method: str) -> Any:
    """Return a request about flow f, its first cycle, its first backfill and so on."""
    if method == "BackfillFlow":
        return backfill_request(1)
    request = GetMessageClass(METHODS[method].input_type)()
    fill(request)
    return request


def fill(message: Message) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.name in GIVEN:
            setattr(message, field.name, GIVEN[field.name])
        elif field.name == "scope":
            fill(getattr(message, field.name))


async def prepare(scheduler: Client) -> None:
    """Give a flow two revisions, variables, a backfill and a cycle."""
    await scheduler.register("f")
    await scheduler.register("f", "a", "b")
    await scheduler.start("f")
    await scheduler.run("f")
    await backfill(scheduler, 2)
    await ended(scheduler)
    change = memory_pb2.UpdateMemoryRequest(scope=memory_pb2.MemoryScope(flow_id="f"), set_json='{"a": 1}')
    await scheduler.stub.UpdateMemory(change)


PARTS = [
    KEYS.flow("f"),
    KEYS.run("f", 0, 0),
    KEYS.cycles("f"),
    KEYS.firings("f"),
    KEYS.backfills("f"),
    KEYS.backfill("f", 1),
    KEYS.backfill_firings("f", 1),
    KEYS.filling("f"),
    KEYS.revisions("f"),
    KEYS.history("f"),
    KEYS.memory("f"),
    KEYS.logs("f", 0),
    f"{KEYS.flow('f')}:queued",
]


@pytest.mark.parametrize("key", PARTS, ids=lambda key: key.split(":flow:")[1])
async def test_no_call_fails_because_a_part_of_a_flow_is_of_another_type(
    scheduler: Client, embedded: RedisServer, key: str
) -> None:
    await prepare(scheduler)
    await embedded.connect().execute_command("DEL", key)
    await embedded.connect().execute_command("SET", key, "text")
    failed: list[str] = []
    for method in sorted(METHODS, key=lambda name: LAST.index(name) if name in LAST else -1):
        try:
            await getattr(scheduler.stub, method)(request_of(method), timeout=5)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED):
                failed.append(f"{method}: {error.code()} {error.details()}")
    assert failed == []


CHANGES: dict[str, tuple[str, list[tuple[Any, ...]], list[str]]] = {
    "backfill": (KEYS.backfill("f", 1), [("HDEL", "status")], ["GetBackfill", "CancelBackfill"]),
    "firings": (KEYS.firings("f"), [("ZADD", 10**15, "rubbish")], ["ListFirings", "ExplainFlow"]),
    "history": (KEYS.history("f"), [("HSET", "1", "\xc1")], ["ListRevisions", "GetRevision", "DiffRevisions"]),
    "logs": (KEYS.logs("f", 0), [("RPUSH", "rubbish")], ["ListLogs"]),
    "memory": (KEYS.memory("f"), [("HSET", "memory", "{")], ["GetMemory", "UpdateMemory"]),
}


@pytest.mark.parametrize(("key", "commands", "methods"), CHANGES.values(), ids=CHANGES)
async def test_calls_that_need_a_broken_record_name_it(
    scheduler: Client, embedded: RedisServer, key: str, commands: list[tuple[Any, ...]], methods: list[str]
) -> None:
    await prepare(scheduler)
    for verb, *rest in commands:
        await embedded.connect().execute_command(verb, key, *rest)
    for method in methods:
        request = request_of(method)
        if method == "ListFirings":
            request.ClearField("backfill_id")
        elif method in ("GetMemory", "UpdateMemory"):
            request.scope.ClearField("cycle")
        refusal = await refused(
            getattr(scheduler.stub, method)(request), grpc.StatusCode.DATA_LOSS, "RECORD_UNREADABLE"
        )
        assert refusal.metadata == {"key": key}
    listed = await scheduler.stub.ListBackfills(request_of("ListBackfills"))
    assert len(listed.backfills) == (0 if key == KEYS.backfill("f", 1) else 1)
