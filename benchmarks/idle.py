"""What an idle stack costs: 1000 started flows, none of them due.

    python -m benchmarks.idle [--seconds 20]

Prints the share of a core that each process uses, and the store commands per second.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from datetime import UTC, datetime, timedelta

import redis

from benchmarks.measure import cpu_seconds
from benchmarks.tradewind_side import PROCESSES, TradewindSide, started
from tradewind.client import Client

FLOWS = 1000
_SETTLE_S = 60.0
"""Until the doctor has looked through the flows once, 200 records a second."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with started(TradewindSide()) as side:
        side.do(_start_flows(side.client))
        time.sleep(_SETTLE_S)
        with redis.Redis.from_url(side.store_url) as store:
            before = {name: cpu_seconds([pid]) for name, pid in side.pids.items()}
            commands = store.info("stats")["total_commands_processed"]
            time.sleep(options.seconds)
            spent = store.info("stats")["total_commands_processed"] - commands - 1
        shares = {
            name: (cpu_seconds([pid]) - before[name]) / options.seconds * 100
            for name, pid in side.pids.items()
            if name in PROCESSES
        }
    for name, share in shares.items():
        print(f"{name:<20} {share:5.2f} % of a core")
    rate = spent / options.seconds
    print(f"{'together':<20} {sum(shares.values()):5.2f} % of a core, {rate:.1f} store commands a second")


async def _start_flows(client: Client) -> None:
    """Start the flows that the side has registered; each is due in an hour."""
    due = datetime.now(UTC) + timedelta(hours=1)
    ids = [flow.flow_id async for flow in client.list_flows()][:FLOWS]
    for first in range(0, len(ids), 50):
        await asyncio.gather(*(client.start_flow(each, at=due) for each in ids[first : first + 50]))
    print(f"{len(ids)} flows run, none is due")


if __name__ == "__main__":
    main()
