"""The items of a screening: one for each share and each month with a whole window before it.

`python -m examples.screening.items --min-momentum 0.2 > items.jsonl` writes them for `tradewind batch submit`.
"""

import argparse
import json
from collections.abc import Sequence
from typing import Any

from examples.momentum.nodes import months as price_table

CRITERIA = {"min_momentum": 0.10, "max_volatility": 0.12, "max_drawdown": 0.25}


def items(months: int = 12, **criteria: float) -> list[dict[str, Any]]:
    """Return the parameters of every item, by month and share."""
    table = price_table()
    return [
        {"share": share, "until": until, "months": months, **CRITERIA, **criteria}
        for at, (until, prices) in enumerate(table)
        for share in sorted(prices)
        if at >= months and share in table[at - months][1]
    ]


def parse_arguments(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Read a user's criteria, as keyword arguments of `items`. Exits for a window that is not on offer."""
    parser = argparse.ArgumentParser(description="Screen shares by their momentum, volatility and drawdown.")
    parser.add_argument("--months", type=int, default=12, help="length of a window")
    for name, default in CRITERIA.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=float, default=default, help=f"{default:g} unless given"
        )
    given = parser.parse_args(arguments)
    longest = len(price_table()) - 1
    if not 2 <= given.months <= longest:
        parser.error(f"--months must be from 2 to {longest}, is {given.months}")
    return vars(given)


if __name__ == "__main__":
    for item in items(**parse_arguments()):
        print(json.dumps(item))
