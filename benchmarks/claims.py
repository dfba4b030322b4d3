"""What a claim costs as queues grow: 1 000 queued node tasks of ten users against 500 000, by the store's own clock.

    python -m benchmarks.claims [--few 1000] [--many 500000] [--rounds 5]

The records are loaded directly. The two sizes take turns. A claim takes ten node tasks that have not been claimed
before, so the short queue is reloaded for each round. Prints the median of single claims, so that occasional delays of
the machine do not count. A ratio near 1 means that the length of a queue does not matter.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Iterator
from typing import Any

import msgspec

from benchmarks.store import Store, send
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.ports.work import Vacancy
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.node_task_manager.stores.redis import RedisNodeTaskStore
from tradewind.node_task_manager.stores.redis_plans import RedisPlanStore
from tradewind.node_task_manager.stores.redis_records import place_of
from tradewind.server.redis.client import Client, connect

USERS = 10
_CLAIMS, _AT_ONCE = 50, 10
_TYPES = ("noop",)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("--few", type=int, default=1_000)
    parser.add_argument("--many", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    medians = asyncio.run(compare((options.few, options.many), options.rounds))
    few, many = (medians[count] for count in (options.few, options.many))
    for count, cost in medians.items():
        print(f"{count:>9,} queued: {cost:8.1f} us a claim of {_AT_ONCE}, median of {options.rounds * _CLAIMS}")
    print(f"ratio {many / few:.2f}")


async def compare(counts: tuple[int, int], rounds: int) -> dict[int, float]:
    """Return the median microseconds of a claim by the number of queued node tasks, each size in a store of its own."""
    costs: dict[int, list[float]] = {count: [] for count in counts}
    with Store() as first, Store() as second:
        sides = [(count, connect(store.url)) for count, store in zip(counts, (first, second), strict=True)]
        left = dict.fromkeys(counts, 0)
        try:
            for _ in range(rounds):
                for count, client in sides:
                    if left[count] <= count / 2:
                        await client.execute_command("FLUSHALL")
                        await load(client, count)
                        left[count] = count
                    costs[count] += await measure(client)
                    left[count] -= _CLAIMS * _AT_ONCE
        finally:
            for _, client in sides:
                await client.end()
    return {count: statistics.median(measured) for count, measured in costs.items()}


async def load(client: Client, count: int) -> None:
    """Load `count` ready node tasks, the same number for each user, without running any scripts."""
    keys, limits = Keys("trading_flow", 0), Limits()
    plan = Plan("wide", tuple(PlanNode(f"n{at}", "noop", schedule_to_start_ms=0) for at in range(1000)), ())
    store = RedisNodeTaskStore(client, keys, limits, lambda: 0)
    await RedisPlanStore(client, keys, limits).save(plan)
    each = count // USERS
    runs = [
        RunSubmission(RunName(f"flow{user}", cycle, 0), "r0", f"user{user}", (("0", plan.digest),), 0)
        for user in range(USERS)
        for cycle in range(-(-each // 1000))
    ]
    for run in runs:
        await _put_component(client, keys, run, plan)
    await send(client, _records(keys, each))
    # Compile the scripts and have their plan looked up before the clock runs.
    await store.claim([])


async def measure(client: Client) -> list[float]:
    """Return the microseconds of each of some claims, by the store's clock; then give back the node tasks."""
    store = RedisNodeTaskStore(client, Keys("trading_flow", 0), Limits(), lambda: 0)
    costs = []
    for _ in range(_CLAIMS):
        await client.execute_command("CONFIG", "RESETSTAT")
        taken = len((await store.claim([Vacancy("w", 0, _AT_ONCE, _TYPES)])).assignments)
        if taken != _AT_ONCE:
            raise SystemExit(f"{taken} node tasks were given out, not {_AT_ONCE}")
        stats = await client.info("commandstats")
        costs.append(float(stats["cmdstat_fcall"]["usec_per_call"]))
    await store.give_back("w", 0, None)
    return costs


async def _put_component(client: Client, keys: Keys, run: RunSubmission, plan: Plan) -> None:
    facts = _packed("r0", run.user_id, plan.digest, 1000, "skip_downstream", 0, 0, False, False, 1, "", "", False)
    await send(client, [("HSET", keys.run(str(run.run)), "0/facts", facts)])


def _packed(*facts: Any) -> bytes:
    """Pack values one after the other, as packing.lua does."""
    return b"".join(map(msgspec.msgpack.encode, facts))


def _records(keys: Keys, each: int) -> Iterator[tuple[Any, ...]]:
    """Yield the commands that make the records, queues and rings of all users."""
    for user in range(USERS):
        for at in range(each):
            task_id = f"flow{user}:{at // 1000}:0:n{at % 1000}"
            state = _packed("pending", "0", at % 1000, "1", str(at + 1), *(None,) * 9)
            run, begin = place_of(task_id)
            yield ("HSET", keys.run(run), f"{begin}state", state)
            yield ("ZADD", keys.ready("noop", f"user{user}"), at + 1, task_id)
        yield ("ZADD", keys.ring("noop"), 0, f"user{user}")
    yield ("ZADD", keys.ready_types(), 1, "noop")


if __name__ == "__main__":
    main()
