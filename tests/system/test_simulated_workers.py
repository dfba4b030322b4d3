"""Workers and their nodes under a virtual clock."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tests.system.simulated import feed, single
from tradewind.client import Client, SyncClient, TaskFailed
from tradewind.flow import Timeouts
from tradewind.testing import VirtualStack, simulate
from tradewind.worker import Context, NodeStopExecution, Wait, node


def test_worker_stays_connected_while_time_leaps(caplog: pytest.LogCaptureFixture) -> None:
    @node("idle")
    async def idle() -> None: ...

    async def days(stack: VirtualStack) -> None:
        await stack.client.register_flow("rare", {"interval": "6h", "nodes": [{"id": "only", "type": "idle"}]})
        await stack.client.start_flow("rare")
        await stack.run_for(days=2)

    caplog.set_level("INFO", "tradewind.worker")
    simulate(days, [idle])
    (connected,) = caplog.messages
    assert connected.startswith("connected as worker-1, session ")


def test_another_worker_takes_over_from_silenced_one() -> None:
    seen: list[str] = []

    @node("slow")
    async def slow(ctx: Context) -> int:
        seen.append(f"attempt {ctx.attempt}")
        await asyncio.sleep(20)
        return ctx.attempt

    async def main(stack: VirtualStack) -> None:
        await stack.client.register_flow("one", single("slow"))
        handle = await stack.client.run_flow("one")
        await stack.run_for(seconds=1)
        for worker_id in ("worker-1", "worker-2"):
            if (await stack.client.get_worker(worker_id)).worker_id == worker_id and worker_id == await _holder(stack):
                stack.silence_worker(3600, worker_id)
        begun = stack.now
        assert await handle.result() == {"only": {"output": 2}}
        assert timedelta(seconds=30) < stack.now - begun < timedelta(seconds=90)

    simulate(main, [slow], workers=2)
    assert seen == ["attempt 1", "attempt 2"]


def test_node_may_be_a_client_of_the_simulation() -> None:
    @node("child")
    async def child(minutes: int) -> int:
        await asyncio.sleep(minutes * 60)
        return minutes

    @node("parent")
    async def parent(ctx: Context) -> list[int]:
        async with Client() as client:
            batch = await client.submit_batch(child, [{"minutes": 2}, {"minutes": 4}])
            return [outputs["output"] for outputs in await batch.result()]

    @node("plain")
    def plain() -> None:
        with SyncClient() as client:
            client.submit_task("child", {"minutes": 1})

    async def main(stack: VirtualStack) -> timedelta:
        begun = stack.now
        task = await stack.client.submit_task(parent)
        assert await task.result() == {"output": [2, 4]}
        with pytest.raises(TaskFailed, match="make the node async, and use Client"):
            await (await stack.client.submit_task(plain)).result()
        return stack.now - begun

    assert simulate(main, [child, parent, plain]) == timedelta(minutes=4)


def test_node_that_begins_with_the_simulation_hears_of_its_timeout() -> None:
    heard = list[str]()

    @node("sleeper")
    async def sleeper() -> None:
        try:
            await asyncio.sleep(3600)
        except NodeStopExecution as stop:
            heard.append(stop.reason)
            raise

    async def main(stack: VirtualStack) -> None:
        await (await stack.client.submit_task(sleeper, timeouts=Timeouts(start_to_close="1m"))).wait()

    simulate(main, [sleeper])
    assert heard == ["the node's deadline has passed, 60.0 s after it began"]


def test_overlapping_silences_last_until_the_latest_end() -> None:
    async def main(stack: VirtualStack) -> timedelta:
        await stack.client.register_flow("one", single("feed"))
        for seconds in (30, 300, 60):
            stack.silence_worker(seconds)
        begun = stack.now
        await (await stack.client.run_flow("one")).wait()
        return stack.now - begun

    assert timedelta(seconds=300) <= simulate(main, [feed]) < timedelta(seconds=330)


def test_error_ends_simulation_at_once_despite_silenced_worker() -> None:
    seen: list[VirtualStack] = []

    async def main(stack: VirtualStack) -> None:
        seen.append(stack)
        stack.silence_worker(10 * 365 * 86_400)
        raise KeyError("wrong")

    with pytest.raises(KeyError, match="wrong"):
        simulate(main, [feed])
    assert seen[0].now < datetime(2026, 1, 1, 1, tzinfo=UTC)


async def _holder(stack: VirtualStack) -> str:
    task = await stack.client.get_node_task("one:0:0:only")
    return task.worker_id


def test_history_tells_an_attempt_that_waits_from_one_that_completes() -> None:
    @node("sign")
    async def sign(ctx: Context) -> str | Wait:
        return ctx.resumed.by if ctx.resumed else Wait("signed")

    async def asked(stack: VirtualStack) -> list[tuple[object, object]]:
        await stack.client.register_flow("desk", single("sign"))
        cycle = await stack.client.run_flow("desk")
        await stack.run_for(seconds=1)
        await stack.client.signal_node("desk:0:0:only", "signed")
        assert (await cycle.wait(5)).succeeded
        lines = [line for line in stack.history.lines if str(line["what"]).startswith("attempt_")]
        return [(line["what"], line.get("signal", line.get("outputs"))) for line in lines]

    assert simulate(asked, [sign]) == [
        ("attempt_began", None),
        ("attempt_suspended", "signed"),
        ("attempt_began", None),
        ("attempt_completed", {"output": "default"}),
    ]


@pytest.mark.parametrize("in_thread", [False, True])
def test_blocking_memory_call_in_plain_code_fails_with_advice(in_thread: bool) -> None:
    def cursor_length(ctx: Context) -> int:
        return len(str(ctx.flow_memory.get("cursor")))

    @node("counter")
    def counter(ctx: Context) -> int:
        return cursor_length(ctx)

    @node("counter")
    async def counter_in_thread(ctx: Context) -> int:
        return await asyncio.to_thread(cursor_length, ctx)

    async def main(stack: VirtualStack) -> str:
        await stack.client.register_flow("one", single("counter"))
        await stack.client.run_flow("one")
        await stack.run_for(seconds=10)
        return str((await stack.client.get_node_task("one:0:0:only")).error)

    assert "make the node an async def" in simulate(main, [counter_in_thread if in_thread else counter])
