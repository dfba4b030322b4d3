"""Docket's tasks and worker.

Docket has neither chains nor joins: each task adds its successor, and the last task tells the client. Joins count in a
Redis list: each parallel task pushes its value, and the last one to push adds the join task with all values. A flow
ends with one push to the list that the client waits on, which costs less than Docket's own results (a subscription and
a connection for each). Values travel as arguments; tasks return None, so nothing is stored as a result.
"""

# mypy: disable-error-code="import-not-found"
# ruff: noqa: B008  a call in the defaults is how Docket injects

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta

from docket import CurrentDocket, Docket, Worker

from benchmarks.workloads import FAN_WIDTH

NAME = "benchmark"
ENDED = "benchmark:ended"
CONCURRENCY = 40
RESOLUTION = timedelta(milliseconds=10)

_MODULE = "benchmarks.peers.docket_app"

Value = dict[str, int]


async def link(flow: str, value: Value, left: int, docket: Docket = CurrentDocket()) -> None:
    """A node of a chain with `left` nodes after it, or the only node of a single flow."""
    value = {"n": value["n"] + 1}
    if left:
        await docket.add(link)(flow, value, left - 1)
    else:
        await _end(docket, flow, value)


async def source(flow: str, value: Value, docket: Docket = CurrentDocket()) -> None:
    """The first node of a fan."""
    value = {"n": value["n"] + 1}
    await docket.add_many(docket.call(leaf)(flow, value) for _ in range(FAN_WIDTH))


async def leaf(flow: str, value: Value, docket: Docket = CurrentDocket()) -> None:
    """A parallel node of a fan; the last one to arrive adds the join."""
    key = f"benchmark:join:{flow}"
    async with docket.redis() as redis:
        arrived = await redis.rpush(key, json.dumps({"n": value["n"] + 1}))
        if arrived == FAN_WIDTH:
            values = [json.loads(text) for text in await redis.lrange(key, 0, -1)]
            await redis.delete(key)
            await docket.add(join)(flow, values)


async def join(flow: str, values: list[Value], docket: Docket = CurrentDocket()) -> None:
    """The last node of a fan."""
    await _end(docket, flow, {"n": sum(value["n"] for value in values)})


async def _end(docket: Docket, flow: str, value: Value) -> None:
    async with docket.redis() as redis:
        await redis.rpush(ENDED, json.dumps([flow, value]))


tasks = [link, source, leaf, join]


def work(store_url: str) -> None:
    """Run one worker until SIGTERM, like Docket's command line, whose options do not allow 10 ms."""
    asyncio.run(
        Worker.run(
            docket_name=NAME,
            url=store_url,
            concurrency=CONCURRENCY,
            minimum_check_interval=RESOLUTION,
            scheduling_resolution=RESOLUTION,
            tasks=[f"{_MODULE}:tasks"],
        )
    )


if __name__ == "__main__":
    work(sys.argv[1])
