"""`delay`: lets some time pass."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tradewind.server.built_in.node_type import (
    TIME_PROPERTIES,
    BuiltIn,
    Fault,
    Handle,
    raise_first,
    time_faults,
    times_of,
    unknown_faults,
)

_SCHEMA = {
    "type": "object",
    "properties": TIME_PROPERTIES,
    "additionalProperties": False,
    "oneOf": [{"required": ["seconds"]}, {"required": ["until"]}],
}


@dataclass(frozen=True, slots=True)
class Delay:
    """How long: `until_ms` since the epoch, or `after_ms` from when the node is ready; the unused one is 0 or -1."""

    until_ms: int
    after_ms: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Delay":
        """Read a config. Raises ValueError with the first fault."""
        raise_first(_faults(config))
        return cls(*times_of(config))


def _faults(config: Mapping[str, Any]) -> list[Fault]:
    return [*unknown_faults(config, ("seconds", "until")), *time_faults(config, required=True)]


DELAY = BuiltIn(
    "delay",
    "Waits for some seconds or until a time, without a worker; emits what arrived at its input, null when nothing did.",
    (Handle("input"),),
    ("output",),
    json.dumps(_SCHEMA),
    _faults,
)
