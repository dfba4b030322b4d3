"""`flow`: runs a cycle of another flow and waits for it to end."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tradewind.server.built_in.node_type import BuiltIn, Fault, raise_first, unknown_faults
from tradewind.server.identifiers import check_identifier

OUTPUT = "output"
MAX_DEPTH = 8
"""How many flows may be above a cycle."""
MAX_INPUT_BYTES = 1024 * 1024
"""The largest input of a cycle."""
_SCHEMA = {
    "type": "object",
    "properties": {
        "flow_id": {"type": "string", "description": "The flow to run a cycle of."},
        "input": {
            "type": "object",
            "description": "Inputs of the cycle; values that arrive at a handle take precedence.",
        },
    },
    "required": ["flow_id"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class SubFlow:
    """The flow to run a cycle of, and the inputs that its config gives the cycle."""

    flow_id: str
    input: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "SubFlow":
        """Read a config. Raises ValueError with the first fault."""
        raise_first(_faults(config))
        return cls(config["flow_id"], config.get("input", {}))


def _faults(config: Mapping[str, Any]) -> list[Fault]:
    found = unknown_faults(config, ("flow_id", "input"))
    flow_id = config.get("flow_id")
    if flow_id is None:
        found.append(((), "needs flow_id, the flow to run a cycle of"))
    elif not isinstance(flow_id, str):
        found.append((("flow_id",), f"must be the id of a flow, is {flow_id!r}"))
    elif fault := check_identifier("flow_id", flow_id):
        found.append((("flow_id",), fault.message))
    if not isinstance(config.get("input", {}), dict):
        found.append((("input",), "must be an object: the inputs of the cycle by name"))
    return found


FLOW = BuiltIn(
    "flow",
    "Runs a cycle of another flow, without a worker, and emits what its sink nodes emit when it has completed.",
    (),
    (OUTPUT,),
    json.dumps(_SCHEMA),
    _faults,
    any_input=True,
    retries=True,
)
