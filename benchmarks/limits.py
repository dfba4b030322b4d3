"""What limits cost: chain-50 with three limits that are never reached, against chain-50 without limits.

    python -m benchmarks.limits [--pairs 5] [--scale 1.0]

Both take turns on one stack; prints the nodes per second of each, their medians and the ratio.
"""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks.tradewind_side import TradewindSide, started
from benchmarks.turns import take_turns
from benchmarks.workloads import WORKLOADS, Workload
from tradewind.client import Client

NONE = (0, 0, 0)
THREE = (10_000, 10_000, 1_000)
"""Limits in total, per user and per flow."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    workload = WORKLOADS["chain-50"].scaled(options.scale)
    with started(TradewindSide()) as side:
        measures = {
            "without limits": partial(_measure, side, workload, NONE),
            "with three": partial(_measure, side, workload, THREE),
        }
        medians = take_turns(measures, options.pairs, "pair")
    print(f"ratio {medians['with three'] / medians['without limits']:.2f}")


def _measure(side: TradewindSide, workload: Workload, limit: tuple[int, int, int]) -> float:
    side.do(_limit(side.client, limit))
    return side.run(workload).nodes_per_second


async def _limit(client: Client, limit: tuple[int, int, int]) -> None:
    in_all, per_user, per_flow = limit
    await client.update_config(max_running=in_all, max_running_per_user=per_user, max_running_per_flow=per_flow)


if __name__ == "__main__":
    main()
