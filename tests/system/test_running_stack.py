"""The stack that users test their flows with."""

import os

import pytest

from tradewind.client import Client, CycleStatus, SyncClient
from tradewind.flow import Flow
from tradewind.testing import running_stack
from tradewind.worker import Context, Worker, node


@node("count")
async def count(ctx: Context) -> int:
    return int(await ctx.flow_memory.update("count", lambda seen: seen + 1, 0))


@node("tell_key")
async def tell_key(ctx: Context) -> str:
    return ctx.idempotency_key


@node("show")
async def show(value: int) -> None:
    """Show it."""


async def test_running_stack_ignores_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for server in ("SCHEDULER", "REGISTRY", "NODE_TASK_MANAGER", "TRIGGER", "ACCESS"):
        monkeypatch.setenv(f"TRADEWIND_{server}_ADDRESS", "localhost:1")
    monkeypatch.setenv("TRADEWIND_STORE_URL", "redis://localhost:1")
    monkeypatch.setenv("TRADEWIND_HOST", "192.0.2.1")
    monkeypatch.setenv("TRADEWIND_AUTH", "true")
    monkeypatch.setenv("TRADEWIND_QUOTAS", "all=10")
    monkeypatch.setenv("TRADEWIND_TLS_CA", "nowhere.pem")
    flow = Flow("counting", "1h")
    flow.node("count", count)
    async with running_stack([count]) as client:
        await client.register_flow("counting", flow)
        assert await (await client.run_flow("counting")).result(30) == {"count": {"output": 1}}


@node("spawn")
async def spawn(ctx: Context, values: list[int]) -> int:
    async with Client(user_id=ctx.user_id) as client:
        batch = await client.submit_batch(show, [{"value": value} for value in values], request_id=ctx.idempotency_key)
        return len(await batch.result(30))


@node("spawn_in_process", process=True)
def spawn_in_process(ctx: Context, value: int) -> str:
    with SyncClient(user_id=ctx.user_id) as client:
        return client.submit_task(show, {"value": value}).wait(30).status.value


async def test_client_of_a_node_reaches_the_same_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_ADDRESS", "localhost:1")
    async with running_stack([show, spawn, spawn_in_process]) as client:
        assert await (await client.submit_task(spawn, {"values": [1, 2]})).result(30) == {"output": 2}
        assert await (await client.submit_task(spawn_in_process, {"value": 1})).result(30) == {"output": "completed"}
    assert os.environ["TRADEWIND_ADDRESS"] == "localhost:1"


async def test_running_stack_leaves_what_is_set_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = ("TRADEWIND_ADDRESS", "TRADEWIND_TOKEN", "TRADEWIND_SECRET_KEY", "OTHER")
    for name in (*changed, "TRADEWIND_CODEC"):
        monkeypatch.setenv(name, "before")
    async with running_stack([show]):
        os.environ.update(dict.fromkeys(changed, "set"))
    assert {name: os.environ[name] for name in changed} == dict.fromkeys(changed, "set")
    assert os.environ["TRADEWIND_CODEC"] == "before"


async def test_no_idempotency_key_returns_when_flow_is_deleted_and_registered_again() -> None:
    flow = Flow("telling", "1h")
    flow.node("tell", tell_key)
    keys = []
    async with running_stack([tell_key]) as client:
        for _ in range(2):
            await client.register_flow("telling", flow)
            handle = await client.run_flow("telling")
            assert handle.cycle == 0
            keys.append((await handle.result(30))["tell"]["output"])
            await client.delete_flow("telling")
    assert [key.partition(":")[2] for key in keys] == ["tell"] * 2
    assert keys[0] != keys[1]


async def test_node_fails_if_its_worker_lacks_an_output_handle_of_the_flow() -> None:
    flow = Flow("counting", "1h")
    flow.node("count", "count")["total"] >> flow.node("show", "show")["value"]
    async with running_stack([show]) as client:
        await client.register_flow("counting", flow)
        handle = await client.run_flow("counting")
        async with Worker([count], address=client.addresses.node_task_manager):
            ended = await handle.wait(30)
        assert ended.status is CycleStatus.FAILED
        described = await client.describe_cycle("counting")
        (failure,) = described.failures
        assert failure.node_id == "count"
        assert failure.error is not None
        assert failure.error.code == "UNKNOWN_HANDLE"
        assert 'which node type "count" does not have; it has "output"' in failure.error.message
        lines = [line.message for line in described.logs if line.node_id == "count"]
        assert lines == [f"UNKNOWN_HANDLE: {failure.error.message}"]
