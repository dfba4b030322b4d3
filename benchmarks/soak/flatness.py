"""Decides whether a quantity that was sampled repeatedly stays flat."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Verdict:
    """The medians of the second and the last third of the values; the last may be higher by up to `allowed`."""

    middle: float
    last: float
    allowed: float

    @property
    def growth(self) -> float:
        return self.last - self.middle

    @property
    def flat(self) -> bool:
        return self.growth <= self.allowed


def judge(values: Sequence[float], allowed: float) -> Verdict:
    """Compare the last two thirds of `values`; the first third is a warm-up. Raises ValueError for fewer than 6 values.

    Medians ignore peaks; a leak raises every later value.
    """
    if len(values) < 6:
        raise ValueError(f"{len(values)} values are too few to say anything of")
    third = len(values) // 3
    return Verdict(statistics.median(values[third : 2 * third]), statistics.median(values[2 * third :]), allowed)
