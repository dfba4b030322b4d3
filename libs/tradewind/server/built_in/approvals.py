"""`approval`: asks a person and goes on according to the answer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tradewind.server.built_in.forms import form_faults
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

APPROVED, REJECTED = "approved", "rejected"
SIGNAL = "approval"
"""The signal that answers it."""
REJECT, APPROVE, FAIL = "reject", "approve", "fail"
_THEN = (REJECT, APPROVE, FAIL)
_FIELD = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "type": {"enum": ["text", "number", "integer", "boolean"]},
        "title": {"type": "string"},
        "required": {"type": "boolean"},
        "choices": {"type": "array"},
    },
    "required": ["name", "type"],
}
_SCHEMA = {
    "type": "object",
    "properties": {
        "form": {
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "description": {"type": "string"},
                "fields": {"type": "array", "items": _FIELD},
            },
            "required": ["title"],
        },
        **TIME_PROPERTIES,
        "then": {
            "enum": list(_THEN),
            "description": "What to do if nobody has answered by then; the default is reject.",
        },
    },
    "required": ["form"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Approval:
    """What is asked, until when (as in Delay; 0 and -1 together mean forever), and what then."""

    form: Mapping[str, Any]
    until_ms: int
    after_ms: int
    then: str = REJECT

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Approval":
        """Read a config. Raises ValueError with the first fault."""
        raise_first(_faults(config))
        return cls(config["form"], *times_of(config), config.get("then", REJECT))


def _faults(config: Mapping[str, Any]) -> list[Fault]:
    found = unknown_faults(config, ("form", "seconds", "until", "then"))
    if "form" in config:
        found += [(("form", *keys), message) for keys, message in form_faults(config["form"])]
    else:
        found.append(((), 'needs form, the question to ask, such as {"title": "Release it?"}'))
    found += time_faults(config, required=False)
    then = config.get("then", REJECT)
    if then not in _THEN:
        found.append((("then",), f"must be {', '.join(_THEN[:-1])} or {_THEN[-1]}, is {then!r}"))
    elif "then" in config and config.get("seconds") is None and config.get("until") is None:
        found.append((("then",), "needs seconds or until as well: it says what to do when that time is over"))
    return found


APPROVAL = BuiltIn(
    "approval",
    "Asks a person, and emits the answer at approved or rejected; waits without a worker.",
    (Handle("input", gather=True),),
    (APPROVED, REJECTED),
    json.dumps(_SCHEMA),
    _faults,
)
