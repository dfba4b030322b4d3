"""What counts as flat: a leak does not, however noisy; a warm-up, a peak and noise do."""

import math
import random
from collections.abc import Callable

import pytest

from benchmarks.soak.flatness import MIB, judge

ALLOWED = 8 * MIB


def series(at: Callable[[float], float], seconds: int = 60, noise: float = 1 * MIB) -> list[float]:
    """Return a value per second: 50 MiB plus what `at` adds, with noise."""
    draw = random.Random(1)
    return [50 * MIB + at(second) + draw.uniform(-noise, noise) for second in range(seconds)]


@pytest.mark.parametrize(
    "values",
    [
        series(lambda _: 0),
        series(lambda second: 40 * MIB * (1 - math.exp(-second / 8))),
        series(lambda second: 100 * MIB if second % 20 == 3 else 0),
        series(lambda second: -second * MIB),
        series(lambda second: 12 * MIB * (second % 30) / 30, seconds=600),
        series(lambda _: 0, noise=12 * MIB),
    ],
    ids=["still", "warming up", "peaks", "shrinking", "saw teeth", "noise"],
)
def test_series_without_a_leak_is_flat(values: list[float]) -> None:
    assert judge(values, ALLOWED).flat


@pytest.mark.parametrize(
    "values",
    [
        series(lambda second: 0.5 * MIB * second),
        series(lambda second: 0.05 * MIB * second, seconds=600),
        series(lambda second: 0.6 * MIB * second, noise=12 * MIB),
        series(lambda second: 20 * MIB if second >= 45 else 0),
    ],
    ids=["half a megabyte a second", "a twentieth, for long", "within noise", "a step late"],
)
def test_growing_series_is_not_flat(values: list[float]) -> None:
    verdict = judge(values, ALLOWED)
    assert not verdict.flat
    assert verdict.growth > ALLOWED


def test_judging_needs_enough_values() -> None:
    with pytest.raises(ValueError, match="too few"):
        judge([1.0] * 5, ALLOWED)
