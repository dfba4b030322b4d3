"""Rates such as `100/m`: up to that number may begin at once, and that many more in each unit of time."""

import re
from dataclasses import dataclass
from typing import Self

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FORM = re.compile(r"([1-9][0-9]{0,8})/([smhd])", re.ASCII)


MAX_COUNT = 10**9 - 1
LONGEST_MS = max(_UNITS_MS.values())
"""The longest period of a rate."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A bucket of `count` tokens that refills evenly within `period_ms`."""

    count: int
    period_ms: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `COUNT/UNIT`. Raises ValueError."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(f'"{text}" is not a rate; write COUNT/UNIT, such as "100/m", where UNIT is s, m, h or d')
        return cls(int(found[1]), _UNITS_MS[found[2]])

    def __str__(self) -> str:
        unit = next(unit for unit, length in _UNITS_MS.items() if length == self.period_ms)
        return f"{self.count}/{unit}"

    @property
    def period_us(self) -> int:
        """How long an empty bucket takes to fill, in microseconds."""
        return self.period_ms * 1000

    @property
    def interval_us(self) -> int:
        """How long one token takes to arrive, in microseconds, at least 1."""
        return max(1, self.period_us // self.count)


@dataclass(frozen=True, slots=True)
class KeyRate:
    """A rate under a key that a user chose; each task that begins takes `cost` tokens."""

    key: str
    rate: Rate
    cost: int = 1

    @property
    def length_us(self) -> int:
        """How long the tokens for one task take to arrive, in microseconds."""
        return self.cost * self.rate.interval_us


def cost_fault(cost: int, rate: Rate) -> str | None:
    """Say what is wrong with a cost; None if nothing is."""
    if cost < 1:
        return f"must be at least 1, is {cost}"
    if cost > rate.count:
        return f"must be at most {rate.count}, the most that the limit {rate} admits at once, is {cost}"
    return None
