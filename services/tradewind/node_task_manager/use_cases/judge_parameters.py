"""Judges the parameters of an ad-hoc task by what live workers have declared of its node type."""

import msgspec

from tradewind.node_task_manager.ports.workers import Declaration
from tradewind.server import json_schema
from tradewind.server.faults import Violation

_PATH = "parameters_json"


def parameter_faults(parameters_json: str, declaration: Declaration) -> list[Violation]:
    """Return everything that is wrong with parameters, a JSON object or "" for none; a bad schema faults nothing."""
    try:
        given = msgspec.json.decode(parameters_json or "{}", type=dict)
    except msgspec.DecodeError as error:
        # A worker reads them in full: numbers out of range and halves of characters as well.
        return [Violation(_PATH, f"is not JSON: {error}")]
    faults = [
        Violation(_PATH, f'"{name}" is required: the node has no default for it')
        for name in sorted(declaration.required - given.keys())
    ]
    schema = declaration.config_schema
    if schema and json_schema.schema_fault(schema) is None:
        faults += json_schema.faults(schema, given, _PATH)
    return faults
