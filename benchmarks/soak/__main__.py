"""Whether a stack's memory stays flat under steady load: prints a table, and exits with 1 if anything grows or fails.

    python -m benchmarks.soak [--seconds 600] [--connections 10000] [--leak 0]

Every service, with access on, and a worker run in processes of their own. The load: flows every second, single and bulk
runs, ad-hoc tasks, batches, failures, watchers, sessions and a worker that come and go, streams that nobody reads, and
a crowd of idle connections to the scheduler. After a warm-up (a quarter of the time, at most a minute), the memory of
each process is sampled every second. The median of the last third may exceed that of the second third by ALLOWED at
most.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import sys
import time

import uvloop

from benchmarks.measure import percentile
from benchmarks.soak.flatness import MIB, judge
from benchmarks.soak.load import EVERY_S, Load
from benchmarks.soak.stack import SoakStack

ALLOWED = 8 * MIB
_CROWDED_SERVICE = "scheduler"
_SETTLE_S = 10.0
_SPARE_FILES = 512
_MIN_DONE = 0.2
"""At least this share of each kind of load must have succeeded: a stack that does nothing is flat too."""


def main() -> None:
    """Soak, print, and exit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument(
        "--leak", type=int, default=0, help="bytes that the worker's nodes keep each time, to see it found"
    )
    options = parser.parse_args()
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = min(options.connections, files - _SPARE_FILES)
    if connections < options.connections:
        print(f"{connections} idle connections: no process may have more than {files} open files here")
    # Some nodes of this process are meant to fail.
    logging.getLogger("tradewind.worker").setLevel(logging.CRITICAL)
    with SoakStack(options.leak) as stack:
        sys.exit(uvloop.run(soak(stack, options.seconds, connections)))


async def soak(stack: SoakStack, seconds: float, connections: int) -> int:
    """Run the load for `seconds` seconds; return the exit code."""
    async with Load(stack) as load:
        await asyncio.sleep(_SETTLE_S)
        before = stack.own_memory()[_CROWDED_SERVICE]
        crowded = time.monotonic()
        opened = await stack.open_crowd(_CROWDED_SERVICE, connections)
        took_s = time.monotonic() - crowded
        after = stack.own_memory()[_CROWDED_SERVICE]
        await asyncio.sleep(min(60.0, seconds / 4))
        samples = await sample_memory(stack, seconds)
    closed = await stack.close_crowd()
    growing = report(samples)
    summary = f"{opened} of {connections} open after {took_s:.1f} s, {closed} closed since"
    print(f"\nidle connections to the {_CROWDED_SERVICE}: {summary}")
    if opened:
        print(f"memory of each: {(after - before) / opened / 1024:.1f} KiB")
    for label, times in (
        ("before them", [took for at, took in load.seconds if at < crowded]),
        ("beside them", [took for at, took in load.seconds if at > crowded + took_s]),
    ):
        if times:
            p50, p99 = (percentile(times, percent) * 1000 for percent in (50, 99))
            print(f"a run of three nodes {label}: p50 {p50:.0f} ms, p99 {p99:.0f} ms ({len(times)} runs)")
    print("done: " + ", ".join(f"{count} {name}" for name, count in sorted(load.done.items())))
    for error, count in load.errors.most_common():
        print(f"FAILED {count} times: {error}")
    kinds = {**EVERY_S, "silent": 1.0}
    idle = [name for name, every_s in kinds.items() if load.done[name] < _MIN_DONE * seconds / every_s]
    if idle:
        print(f"HARDLY DONE: {', '.join(idle)}")
    lost = opened < connections or closed > 0
    return int(bool(growing or load.errors or idle or lost))


async def sample_memory(stack: SoakStack, seconds: float) -> dict[str, list[int]]:
    """Return samples of the memory of each process, one per second."""
    samples: dict[str, list[int]] = {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        stack.check()
        for name, value in stack.own_memory().items():
            samples.setdefault(name, []).append(value)
        await asyncio.sleep(1)
    return samples


def report(samples: dict[str, list[int]]) -> list[str]:
    """Print how the memory of each process developed, and return the names of those that have grown."""
    print(f"{'MiB':<20}{'first':>9}{'middle':>9}{'last':>9}{'growth':>9}   at most {ALLOWED / MIB:.0f}")
    growing = []
    for name, values in samples.items():
        verdict = judge(values, ALLOWED)
        row = "".join(f"{value / MIB:9.1f}" for value in (values[0], verdict.middle, verdict.last, verdict.growth))
        print(f"{name:<20}{row}   {'flat' if verdict.flat else 'GROWS'}")
        if not verdict.flat:
            growing.append(name)
    return growing


if __name__ == "__main__":
    main()
