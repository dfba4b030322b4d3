"""What caching a node costs: chain-50 without a cache, with a cache that always hits, and with one that never does.

    python -m benchmarks.caches [--rounds 5] [--scale 1.0]

All three take turns on one stack. Their inputs differ only in the number that a run begins with: it is the same for
every run where all nodes shall hit, and a new one for every other run. A node that misses runs, and its outputs are
cached. Prints the nodes per second of each, their medians and the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.sides import SideFailed
from benchmarks.tradewind_side import TradewindSide, started
from benchmarks.turns import take_turns
from benchmarks.workloads import WORKLOADS, Workload
from tradewind.cli.bench import flows
from tradewind.client import Client

CACHE = "screening"
FLOWS = 50
WAIT_S = 60.0
NONE, HIT, MISS = "no cache", "all found", "nothing found"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.caches", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    workload = WORKLOADS["chain-50"].scaled(options.scale)
    with started(TradewindSide()) as side:
        chains = Chains(side.client)
        side.do(chains.register())

        def measure(name: str) -> float:
            return side.do(chains.measure(name, workload))

        medians = take_turns({name: partial(measure, name) for name in (NONE, HIT, MISS)}, options.rounds, "round")
    for name in (HIT, MISS):
        print(f"ratio, {name:<13} {medians[name] / medians[NONE]:.2f}")


class Chains:
    """Chains of ten nodes, with and without caches."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # Numbers this far apart ensure that no two chains pass the same one.
        self._fresh = itertools.count(1000, 1000)

    async def register(self) -> None:
        """Register the flows."""
        plain = flows.weather(flows.Shape.CHAIN)
        cached = {**plain, "nodes": [{**node, "cache": CACHE} for node in plain["nodes"]]}
        for name, definition in ((NONE, plain), (HIT, cached)):
            await asyncio.gather(*(self._client.register_flow(each, definition) for each in _ids(name)))

    async def measure(self, name: str, workload: Workload) -> float:
        """Warm up, run the workload and return its nodes per second. Raises SideFailed on unexpected hits or misses."""
        warming = workload.warming()
        begin: Callable[[], int] = (lambda: 0) if name == HIT else lambda: next(self._fresh)
        await self._run(name, warming.flows, warming.in_flight, begin)
        before = await self._counts()
        wanted = {NONE: (0, 0), HIT: (workload.nodes, 0), MISS: (0, workload.nodes)}[name]
        began = time.perf_counter()
        await self._run(name, workload.flows, workload.in_flight, begin)
        seconds = time.perf_counter() - began
        after = await self._counts()
        found, missed = after[0] - before[0], after[1] - before[1]
        if (found, missed) != wanted:
            raise SideFailed(f"{name}: {found} nodes were found in the cache and {missed} were not, not {wanted}")
        return workload.nodes / seconds

    async def _counts(self) -> tuple[int, int]:
        """Return the hits and misses so far; the counts are written once a second."""
        await asyncio.sleep(1.5)
        (seen,) = await self._client.cache_statistics(CACHE)
        return seen.hits, seen.misses

    async def _run(self, name: str, count: int, in_flight: int, begin: Callable[[], int]) -> None:
        wanted = iter(range(count))
        ids = _ids(name)

        async def keep_running(numbers: Iterator[int]) -> None:
            for at in numbers:
                first = begin()
                inputs = {"value": {"n": first}}
                handle = await self._client.run_flow(ids[at % len(ids)], inputs=inputs, wait=WAIT_S)
                answer = (await handle.result(WAIT_S))["last"]["value"]["n"]
                if answer != first + flows.CHAIN:
                    raise SideFailed(f"{name}: a chain that began with {first} ended with {answer}")

        await asyncio.gather(*(keep_running(wanted) for _ in range(in_flight)))


def _ids(name: str) -> list[str]:
    kind = "plain" if name == NONE else "cached"
    return [f"bench-{kind}-{at}" for at in range(FLOWS)]


if __name__ == "__main__":
    main()
