"""How long a user's task waits while another user has 50 000 tasks queued, compared with an empty queue.

    python -m benchmarks.fair [--queued 50000] [--tries 50]

One worker with 1000 places runs tasks of the one user that take about a second each, so that a place becomes free about
every millisecond. The other user submits single tasks, one after the other; the time measured is from the call until
the task begins. Prints the medians in milliseconds and their ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from benchmarks.tradewind_side import TradewindSide, started
from tradewind.client import Addresses, Client

BATCH = 10_000
PLACES = 1000
SETTLE_S = 5.0
TYPE = "bench_began"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fair", description=__doc__)
    parser.add_argument("--queued", type=int, default=50_000)
    parser.add_argument("--tries", type=int, default=50)
    options = parser.parse_args()
    with started(TradewindSide("benchmarks.fair_nodes", capacity=PLACES)) as side:
        empty, full = side.do(_compare(side.client.addresses, options.queued, options.tries))
    print(f"median start on an empty queue      {empty:7.2f} ms")
    print(f"median start behind {options.queued:>6,} queued   {full:7.2f} ms")
    print(f"ratio {full / empty:.2f}")


async def _compare(where: Addresses, queued: int, tries: int) -> tuple[float, float]:
    async with Client(addresses=where, user_id="one") as one, Client(addresses=where, user_id="other") as other:
        await _starts(other, 10)
        empty = await _starts(other, tries)
        for first in range(0, queued, BATCH):
            await one.submit_batch(TYPE, [{"pause": pause} for pause in _pauses(min(queued - first, BATCH))])
        # Wait until tasks that began together no longer end together.
        await asyncio.sleep(SETTLE_S)
        full = await _starts(other, tries)
        waiting = (await one.queue_statistics(user_id="one")).queued
        print(f"{waiting:,} of the one user's were still queued at the end")
    return statistics.median(empty) * 1000, statistics.median(full) * 1000


def _pauses(count: int) -> list[float]:
    """Return how long the tasks take: from half a second to one and a half, evenly spread, in no particular order."""
    return [0.5 + at * 0.618 % 1 for at in range(count)]


async def _starts(client: Client, tries: int) -> list[float]:
    """Run several tasks, one at a time, and return how many seconds after its submission each began."""
    waits = []
    for _ in range(tries):
        submitted = time.time()
        task = await client.submit_task(TYPE, {})
        outputs = await task.result()
        waits.append(outputs["at"] - submitted)
    return waits


if __name__ == "__main__":
    main()
