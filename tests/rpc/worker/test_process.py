"""A worker as a process of its own: signals, exit codes and what it prints."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.rpc.worker.engine import Engine
from tests.waiting import until

NODES = """
import asyncio, sys, time
from tradewind.worker import Context, node

@node("short")
async def short(ctx: Context) -> str:
    await ctx.progress(1)
    await asyncio.sleep(0.3)
    return "done"

@node("spins")
async def spins(ctx: Context) -> None:
    await ctx.progress(1)
    while True:
        pass

@node("exits")
async def exits() -> None:
    async def leave() -> None:
        sys.exit(3)

    await asyncio.gather(leave())

@node("borrows")
async def borrows(ctx: Context) -> None:
    await ctx.progress(1)
    await asyncio.to_thread(time.sleep, 600)

@node("deaf")
async def deaf(ctx: Context) -> None:
    await ctx.progress(1)
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass

@node("lingers")
async def lingers(ctx: Context) -> None:
    async def prices():
        try:
            yield 1
        finally:
            await asyncio.sleep(600)

    kept.append(prices())
    await anext(kept[0])
    await ctx.progress(1)
    await asyncio.sleep(600)

kept = []

@node("stuck")
def stuck(ctx: Context) -> None:
    ctx.progress(1)
    time.sleep(600)
"""


@contextlib.asynccontextmanager
async def worker_process(folder: Path, *arguments: str, address: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `tradewind worker` in `folder`."""
    (folder / "shop_nodes.py").write_text(NODES)
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "tradewind.cli", "worker", *arguments],
        cwd=folder,
        env={**os.environ, "TRADEWIND_ADDRESS": address},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def begun(engine: Engine, *tokens: str) -> None:
    """Wait until the nodes with these tokens have reported progress."""
    session = await engine.session()
    await until(
        lambda: {each.token for request in session.requests for each in request.progress} == set(tokens),
        f"{tokens} run",
    )


async def test_sigterm_lets_nodes_finish_and_exits_with_0(engine: Engine, tmp_path: Path) -> None:
    async with worker_process(tmp_path, "shop_nodes", "--grace", "10", address=engine.address) as process:
        session = await engine.session()
        session.assign("short", "t1")
        await begun(engine, "t1")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0

    assert [each.token for each in session.completions] == ["t1"]
    assert (len(engine.deregistered), session.given_back) == (1, [])


@pytest.mark.parametrize("node_type", ["stuck", "borrows", "deaf", "lingers"])
async def test_node_that_ignores_stop_does_not_keep_worker_alive(
    engine: Engine, tmp_path: Path, node_type: str
) -> None:
    async with worker_process(tmp_path, "shop_nodes", "--grace", "0.1", address=engine.address) as process:
        session = await engine.session()
        session.assign(node_type, "t1")
        await begun(engine, "t1")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0

    assert (session.completions, session.given_back) == ([], ["t1"])


async def test_sys_exit_in_task_of_node_fails_only_that_node(engine: Engine, tmp_path: Path) -> None:
    async with worker_process(tmp_path, "shop_nodes", address=engine.address) as process:
        session = await engine.session()
        session.assign("exits", "t1")
        await until(lambda: session.failures or session.ended.is_set(), "the node has failed")
        session.assign("short", "t2")
        await session.until_completed("t2")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0

    assert [(each.token, each.error.type) for each in session.failures] == [("t1", "SystemExit")]


@pytest.mark.parametrize("node_type", ["stuck", "borrows"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_second_signal_ends_worker_at_once(
    engine: Engine, tmp_path: Path, number: signal.Signals, node_type: str
) -> None:
    async with worker_process(tmp_path, "shop_nodes", "--grace", "600", address=engine.address) as process:
        session = await engine.session()
        session.assign(node_type, "t1")
        await begun(engine, "t1")
        process.send_signal(number)
        await until(lambda: any(request.draining for request in session.requests), "the worker leaves")
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 30) == 128 + number


async def test_second_signal_ends_worker_whose_loop_a_node_holds(engine: Engine, tmp_path: Path) -> None:
    async with worker_process(tmp_path, "shop_nodes", address=engine.address) as process:
        session = await engine.session()
        session.assign("spins", "t1")
        await begun(engine, "t1")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) in (128 + signal.SIGINT, 128 + signal.SIGTERM)


async def test_unknown_node_name_exits_with_2_and_suggestion(tmp_path: Path) -> None:
    async with worker_process(tmp_path, "shop_nodes:shrot") as process:
        _, stderr = await asyncio.wait_for(process.communicate(), 30)

    assert process.returncode == 2
    assert stderr.decode() == 'error: module shop_nodes has no shrot; did you mean "short"?\n'
