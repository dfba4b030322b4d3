"""Says whether a quantity that was looked at again and again stays as it is."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the second and the last third of the values compare, each by its median; `allowed` may be added."""

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
    """Compare the thirds of `values`, of which the first is left out as a warm-up. Raises ValueError for fewer than 6.

    Medians let peaks be; a leak raises each later value.
    """
    if len(values) < 6:
        raise ValueError(f"{len(values)} values are too few to say anything of")
    third = len(values) // 3
    return Verdict(statistics.median(values[third : 2 * third]), statistics.median(values[2 * third :]), allowed)
