"""The node type of the screening example: it judges one share over one window of months."""

import itertools
from statistics import stdev
from typing import Any

from examples.momentum.nodes import months as price_table
from tradewind.worker import Context, node


@node("screen_share", outputs=["verdict"])
def screen_share(
    ctx: Context,
    share: str,
    until: str,
    months: int = 12,
    min_momentum: float = 0.10,
    max_volatility: float = 0.12,
    max_drawdown: float = 0.25,
) -> dict[str, Any]:
    """Judge a share by its prices in the `months` months up to `until` (such as "2004-08").

    Momentum is the gain over the window, volatility the standard deviation of the monthly returns, drawdown the deepest
    fall below an earlier price; all as fractions.
    """
    window = window_of(share, until, months)
    returns = [now / before - 1 for before, now in itertools.pairwise(window)]
    found = {
        "momentum": window[-1] / window[0] - 1,
        "volatility": stdev(returns),
        "drawdown": max(1 - price / max(window[: at + 1]) for at, price in enumerate(window)),
    }
    passed = (
        found["momentum"] >= min_momentum
        and found["volatility"] <= max_volatility
        and found["drawdown"] <= max_drawdown
    )
    ctx.log("%s until %s %s", share, until, "passes" if passed else "does not pass")
    return {
        "share": share,
        "until": until,
        **{name: round(value, 4) for name, value in found.items()},
        "passed": passed,
    }


def window_of(share: str, until: str, months: int) -> list[float]:
    """Return the prices of a share from `months` months before `until` up to `until`.

    Raises ValueError when some of them are missing.
    """
    table = price_table()
    names = [name for name, _ in table]
    if until not in names:
        raise ValueError(f"no prices for {until}: they go from {names[0]} to {names[-1]}")
    at = names.index(until)
    window = [prices[share] for _, prices in table[max(0, at - months) : at + 1] if share in prices]
    if months < 2 or len(window) <= months:
        raise ValueError(
            f"{share} has {len(window)} prices up to {until}; {months} months need {months + 1}, 3 at least"
        )
    return window
