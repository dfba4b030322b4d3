"""What a rerun that keeps nearly everything costs: a cycle of 10 000 nodes, one of which runs again.

    python -m benchmarks.reruns [--nodes 10000] [--rounds 5]

The flow is one node whose value goes to all others. Prints the time from the call that begins a cycle until the client
hears of its end, for the first run and for reruns from one of the last nodes.
"""

from __future__ import annotations

import argparse
import statistics
import time

from benchmarks.tradewind_side import TradewindSide, started
from tradewind.client import Client, CycleStatus
from tradewind.flow import Flow

_WAIT_S = 300.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reruns", description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with started(TradewindSide()) as side:
        first, again = side.do(measure(side.client, options.nodes, options.rounds))
    print(f"{options.nodes:,} nodes, all of them run: {first:6.2f} s")
    print(f"{options.nodes:,} nodes, all but one kept: {statistics.median(again):6.2f} s, median of {len(again)}")


async def measure(client: Client, nodes: int, rounds: int) -> tuple[float, list[float]]:
    """Return the seconds of a first run and of reruns."""
    flow = Flow("wide", "1h")
    source = flow.node("source", "bench_increment")
    for at in range(nodes - 1):
        source["value"] >> flow.node(f"n{at}", "bench_increment")["value"]
    await client.register_flow("wide", flow)
    begun = time.perf_counter()
    cycle = await (await client.run_flow("wide")).wait(_WAIT_S)
    first = time.perf_counter() - begun
    assert cycle.status is CycleStatus.COMPLETED, cycle
    again = []
    for _ in range(rounds):
        begun = time.perf_counter()
        rerun = await (await client.rerun_cycle("wide", from_nodes=["n0"])).wait(_WAIT_S)
        again.append(time.perf_counter() - begun)
        assert rerun.status is CycleStatus.COMPLETED, rerun
        assert rerun.rerun is not None
        assert rerun.rerun.kept_nodes == nodes - 1
    return first, again


if __name__ == "__main__":
    main()
