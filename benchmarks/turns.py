"""Measurements that take turns on one stack, so that other activity on the machine affects all of them alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping


def take_turns(measures: Mapping[str, Callable[[], float]], turns: int, turn: str) -> dict[str, float]:
    """Measure nodes per second `turns` times for each name, taking turns; print all figures and return the medians."""
    width = max(map(len, measures))
    rates: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(turns):
        for name, measure in measures.items():
            rates[name].append(measure())
            print(f"{turn} {number + 1}, {name:<{width}} {rates[name][-1]:8.0f} nodes/s", flush=True)
    medians = {name: statistics.median(measured) for name, measured in rates.items()}
    for name, median in medians.items():
        print(f"median, {name:<{width}} {median:8.0f} nodes/s")
    return medians
