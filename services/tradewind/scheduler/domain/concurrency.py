"""The limit on nodes that run at once under a key, as a flow defines it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.fields import Fields
from tradewind.scheduler.domain.paths import join

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


def read_concurrency(item: dict[str, Any], path: str, faults: FaultList) -> Concurrency | None:
    """Read the field `concurrency` of the node at `path`; None when it is absent or at fault."""
    if item.get("concurrency") is None:
        return None
    before = len(faults)
    fields = Fields(Fields(item, path, faults).mapping("concurrency"), join(path, "concurrency"), faults)
    if len(faults) > before:
        return None
    fields.refuse_unknown(_FIELDS)
    key = fields.identifier("key")
    fields.required("max")
    most = fields.integer("max", 1, 1, MOST)
    when_full = WhenFull(fields.choice("when_full", list(WhenFull), WhenFull.WAIT))
    return Concurrency(key, most, when_full) if key is not None and len(faults) == before else None
