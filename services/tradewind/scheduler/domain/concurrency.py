"""The limit on nodes that run at once under a key, as a flow defines it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tradewind.scheduler.domain.fields import Fields

MOST = 1_000_000
_FIELDS = ("key", "max", "when_full")


class WhenFull(StrEnum):
    """What happens to a node when its key already has as many nodes running as it may."""

    WAIT = "wait"
    DROP_NEW = "drop_new"
    CANCEL_OLDEST = "cancel_oldest"
    KEEP_NEWEST = "keep_newest"


@dataclass(frozen=True, slots=True)
class Concurrency:
    """A limit: at most `most` nodes of a user run at once under `key`, whatever their flow and type."""

    key: str
    most: int
    when_full: WhenFull = WhenFull.WAIT

    def to_weather(self) -> dict[str, Any]:
        """Return it in Weather Syntax."""
        weather: dict[str, Any] = {"key": self.key, "max": self.most}
        if self.when_full is not WhenFull.WAIT:
            weather["when_full"] = self.when_full.value
        return weather


def read_concurrency(node: Fields) -> Concurrency | None:
    """Read the field `concurrency` of a node; None when it is absent or at fault."""
    fields = node.nested("concurrency")
    if fields is None:
        return None
    fields.refuse_unknown(_FIELDS)
    key = fields.identifier("key")
    fields.required("max")
    most = fields.integer("max", 1, 1, MOST)
    when_full = WhenFull(fields.choice("when_full", list(WhenFull), WhenFull.WAIT))
    return Concurrency(key, most, when_full) if key is not None and not fields.faulty else None
