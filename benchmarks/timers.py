"""How late flows begin that are due at one instant, and flows that repeat every second, compared with peers.

    python -m benchmarks.timers [--rounds 5] [--seconds 30]

Compares 1000 flows due at one instant with 1000 Celery tasks with that ETA, and 100 and 1000 flows every second with as
many taskiq schedules. Lateness runs from the planned time to the first line of the node. Sides alternate; prints each
round, then medians over the rounds and their ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from benchmarks import processes, stamps
from benchmarks.measure import percentile
from benchmarks.sides import PEER_PYTHON
from benchmarks.store import Store
from benchmarks.tradewind_side import TradewindSide, started
from tradewind.client import Client

AT_ONCE = 1000
EVERY_SECOND = (100, 1000)
_LEAD_S = 10.0
_SETTLE_S = 3.0
_QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Late(NamedTuple):
    """How late flows or tasks began (ms), and how many never did."""

    p50: float
    p99: float
    missed: int


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=30)
    options = parser.parse_args()
    compare(f"{AT_ONCE} at one instant", options.rounds, tradewind_at_once, ("Celery", celery_at_once))
    for count in EVERY_SECOND:
        compare(
            f"{count} every second",
            options.rounds,
            lambda count=count: tradewind_every_second(count, options.seconds),  # type: ignore[misc]
            ("taskiq", lambda count=count: taskiq_every_second(count, options.seconds)),  # type: ignore[misc]
        )


def compare(what: str, rounds: int, tradewind: Callable[[], Late], peer: tuple[str, Callable[[], Late]]) -> None:
    """Run the two sides in turn and print the results."""
    ours, theirs = [], []
    for turn in range(1, rounds + 1):
        ours.append(tradewind())
        theirs.append(peer[1]())
        print(f"{what}, round {turn}: Tradewind {summary(ours[-1])}; {peer[0]} {summary(theirs[-1])}", flush=True)
    for name in ("p50", "p99"):
        mine = statistics.median(getattr(each, name) for each in ours)
        other = statistics.median(getattr(each, name) for each in theirs)
        print(f"{what}: {name} {mine:.1f} ms beside {other:.1f} ms of {peer[0]}: {mine / other:.2f} x", flush=True)
    print(
        f"{what}: missed {sum(each.missed for each in ours)} beside {sum(each.missed for each in theirs)}", flush=True
    )


def summary(late: Late) -> str:
    """Return the result in words."""
    return f"p50 {late.p50:.1f} ms, p99 {late.p99:.1f} ms, missed {late.missed}"


@contextlib.contextmanager
def file_of_stamps() -> Iterator[Path]:
    """Yield the path of the file in which nodes and tasks note their lateness."""
    with tempfile.TemporaryDirectory(prefix="tradewind-bench-") as home:
        yield Path(home) / "stamps"


def lateness_in(file: Path, wanted: int) -> Late:
    """Return the lateness noted in a file; `wanted` is the number of expected notes."""
    late = stamps.read(file)
    if not late:
        return Late(0, 0, wanted)
    return Late(percentile(late, 50), percentile(late, 99), wanted - len(late))


def tradewind_at_once() -> Late:
    """Measure flows of one node that are all due at one instant."""
    return _tradewind(AT_ONCE, {"interval": "1h"}, 1)


def tradewind_every_second(count: int, seconds: int) -> Late:
    """Measure flows of one node that repeat every second, `seconds` times each."""
    return _tradewind(count, {"schedule": {"interval": 1, "max_cycles": seconds}}, seconds)


def _tradewind(count: int, when: dict[str, object], times: int) -> Late:
    with file_of_stamps() as file:
        side = TradewindSide("benchmarks.timer_nodes", capacity=1000, environment={stamps.FILE: str(file)})
        flow = {**when, "nodes": [{"id": "stamp", "type": "bench_stamp"}], "edges": []}
        with started(side):
            side.do(_begin(side.client, count, flow))
            deadline = time.monotonic() + _LEAD_S + times + 30
            while len(stamps.read(file)) < count * times and time.monotonic() < deadline:
                time.sleep(0.5)
        return lateness_in(file, count * times)


async def _begin(client: Client, count: int, flow: dict[str, object]) -> None:
    names = [f"timer-{at}" for at in range(count)]
    for first in range(0, count, 50):
        await asyncio.gather(*(client.register_flow(each, flow) for each in names[first : first + 50]))
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=_LEAD_S)
    for first in range(0, count, 50):
        await asyncio.gather(*(client.start_flow(each, at=due) for each in names[first : first + 50]))
    # Do not poll the file meanwhile: that would take time from what is measured.
    await asyncio.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds()) + _SETTLE_S)


def celery_at_once() -> Late:
    """Measure Celery tasks with one ETA."""
    with file_of_stamps() as file, Store() as store:
        planned = float(int(time.time()) + 3 * _LEAD_S)
        process = processes.spawn(
            [str(PEER_PYTHON), "-m", "benchmarks.peers.celery_timers", str(AT_ONCE), str(planned)],
            environment={stamps.FILE: str(file), "BENCHMARK_STORE_URL": store.url},
            **_QUIET,
        )
        process.wait()
        return lateness_in(file, AT_ONCE)


def taskiq_every_second(count: int, seconds: int) -> Late:
    """Measure taskiq schedules with an interval of a second; the first seconds do not count."""
    with file_of_stamps() as file, Store() as store:
        environment = {stamps.FILE: str(file), "BENCHMARK_STORE_URL": store.url, "BENCHMARK_COUNT": str(count)}
        taskiq = [str(PEER_PYTHON), "-m", "taskiq"]
        worker = processes.spawn(
            [*taskiq, "worker", "benchmarks.peers.taskiq_app:broker", "--workers", "2", "--log-level", "ERROR"],
            environment=environment,
            **_QUIET,
        )
        time.sleep(_LEAD_S / 2)
        scheduler = processes.spawn(
            [*taskiq, "scheduler", "benchmarks.peers.taskiq_app:scheduler", "--log-level", "ERROR"],
            environment=environment,
            **_QUIET,
        )
        try:
            while not stamps.read(file):
                time.sleep(0.1)
            time.sleep(_SETTLE_S)
            file.write_text("", encoding="ascii")
            time.sleep(seconds)
            late = lateness_in(file, count * seconds)
        finally:
            processes.end(scheduler)
            processes.end(worker)
        return late


if __name__ == "__main__":
    main()
