"""Judges the parameters of ad-hoc tasks and of batches by what live workers have declared of the node type."""

from collections.abc import Mapping

import msgspec

from tradewind.node_task_manager.domain.ad_hoc import AdHocWork
from tradewind.node_task_manager.ports.workers import Declaration
from tradewind.server import json_schema
from tradewind.server.faults import Violation

MOST_FAULTS = 100


def work_faults(
    work: AdHocWork, declaration: Declaration | None, unreadable: Mapping[int, Violation]
) -> list[Violation]:
    """Return what is wrong with the parameters of each item, in order, the first 100 faults.

    Those of the items at the places in `unreadable` are known already. Without a declaration nothing else is a fault.
    """
    found: list[Violation] = []
    for place, text in enumerate(work.parameters):
        if place in unreadable:
            found.append(unreadable[place])
        elif declaration is not None:
            path = f"parameters_json[{place}]" if work.batch else "parameters_json"
            found += parameter_faults(text, declaration, path)
        if len(found) >= MOST_FAULTS:
            break
    return found[:MOST_FAULTS]


def parameter_faults(parameters_json: str, declaration: Declaration, path: str) -> list[Violation]:
    """Return everything that is wrong with parameters, a JSON object or "" for none; a bad schema faults nothing."""
    try:
        given = msgspec.json.decode(parameters_json or "{}", type=dict)
    except msgspec.DecodeError as error:
        # A worker reads them in full: numbers out of range and halves of characters as well.
        return [Violation(path, f"is not JSON: {error}")]
    faults = [
        Violation(path, f'"{name}" is required: the node has no default for it')
        for name in sorted(declaration.required - given.keys())
    ]
    schema = declaration.config_schema
    if schema and json_schema.schema_fault(schema) is None:
        faults += json_schema.faults(schema, given, path)
    return faults
