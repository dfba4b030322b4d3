"""The limit on how many nodes begin per unit of time under a key, as a flow defines it."""

from dataclasses import dataclass
from typing import Any

from tradewind.scheduler.domain.fields import Fields
from tradewind.server.rates import MAX_COUNT, Rate, cost_fault

_FIELDS = ("key", "limit", "cost")


@dataclass(frozen=True, slots=True)
class KeyRate:
    """A rate: under `key`, nodes of a user begin no faster than `limit`, such as `100/m`; each node uses up `cost`."""

    key: str
    limit: str
    cost: int = 1

    def to_weather(self) -> dict[str, Any]:
        """Return it in Weather Syntax."""
        weather: dict[str, Any] = {"key": self.key, "limit": self.limit}
        if self.cost != 1:
            weather["cost"] = self.cost
        return weather


def read_rate(node: Fields) -> KeyRate | None:
    """Read the field `rate` of a node; None when it is absent or at fault."""
    fields = node.nested("rate")
    if fields is None:
        return None
    fields.refuse_unknown(_FIELDS)
    key = fields.identifier("key")
    fields.required("limit")
    limit = fields.text("limit", 32)
    cost = fields.integer("cost", 1, 1, MAX_COUNT)
    if fields.faulty or key is None:
        return None
    try:
        rate = Rate.parse(limit)
    except ValueError as error:
        fields.fault("limit", str(error))
        return None
    if fault := cost_fault(cost, rate):
        fields.fault("cost", fault)
        return None
    return KeyRate(key, limit, cost)
