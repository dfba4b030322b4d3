"""How a node runs once for each item of a list, as a flow defines it."""

from dataclasses import dataclass
from typing import Any

from tradewind.scheduler.domain.fields import Fields
from tradewind.scheduler.domain.paths import shown

MAX_PARALLEL, MAX_ITEMS = 100, 10_000
ERRORS = "errors"
"""The output handle on which a mapped node reports the items that did not complete."""
FAN_OUT_FIELDS = ("map", "max_parallel", "min_success")


@dataclass(frozen=True, slots=True)
class FanOut:
    """The node runs once for each item of the list at input `handle`, at most `max_parallel` at once.

    It completes when `min_success` items do: an integer is a number of items, a float a share of them, None all.
    """

    handle: str
    max_parallel: int = MAX_PARALLEL
    min_success: int | float | None = None

    def to_weather(self) -> dict[str, Any]:
        """Return it in Weather Syntax, as fields of the node, without fields at their defaults."""
        weather: dict[str, Any] = {"map": self.handle}
        if self.max_parallel != MAX_PARALLEL:
            weather["max_parallel"] = self.max_parallel
        if self.min_success is not None:
            weather["min_success"] = self.min_success
        return weather


def read_fan_out(node: Fields) -> FanOut | None:
    """Read the fan-out fields of a node; None when the node runs once or they are at fault."""
    if node.get("map") is None:
        for name in FAN_OUT_FIELDS[1:]:
            if node.get(name) is not None:
                node.fault(name, 'needs "map", the input handle whose list the node runs over')
        return None
    handle = node.identifier("map")
    max_parallel = node.integer("max_parallel", MAX_PARALLEL, 1, MAX_ITEMS)
    min_success = node.get("min_success")
    if not (min_success is None or _is_count(min_success) or _is_share(min_success)):
        rule = f"a whole number of items from 0 to {MAX_ITEMS}, or a share of them over 0 and under 1"
        node.fault("min_success", f"must be {rule}, is {shown(min_success)}; by default, all must complete")
    if handle is None or node.faulty:
        return None
    return FanOut(handle, max_parallel, min_success)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_ITEMS


def _is_share(value: object) -> bool:
    return isinstance(value, float) and 0 < value < 1
