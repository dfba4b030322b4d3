"""Nodes that were handed out ahead of their planned time begin at that time, and not at all when stopped before."""

import asyncio
import time
from datetime import timedelta

from tests.unit.worker.attempts import Bench
from tradewind.worker import node


async def test_node_begins_at_planned_time() -> None:
    begun: list[float] = []

    @node("note")
    async def note() -> None:
        begun.append(time.monotonic())

    async with Bench([note]) as bench:
        assigned_at = time.monotonic()
        run = await bench.run(bench.assignment("note", start_in=timedelta(milliseconds=150)))
        assert begun[0] - assigned_at >= 0.15
        assert run.error is None


async def test_node_stopped_before_planned_time_never_begins() -> None:
    begun: list[str] = []

    @node("note")
    async def note() -> None:
        begun.append("note")

    async with Bench([note]) as bench:
        bench.executor.start(bench.assignment("note", start_in=timedelta(seconds=30)))
        await asyncio.sleep(0)
        bench.stop()
        run = await bench.end("t1")
        assert run.terminated
        assert not bench.executor.held
    assert begun == []
