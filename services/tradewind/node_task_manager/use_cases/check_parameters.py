"""Checking the parameters of ad-hoc tasks and batches against what live workers have declared of the node type."""

from collections.abc import Mapping

import msgspec

from tradewind.node_task_manager.domain.ad_hoc import AdHocWork
from tradewind.node_task_manager.ports.workers import Declaration
from tradewind.server import json_schema
from tradewind.server.faults import Violation

MAX_FAULTS = 100


def work_faults(
    work: AdHocWork, declaration: Declaration | None, unreadable: Mapping[int, Violation]
) -> list[Violation]:
    """Return the faults in the parameters of each item, in order, at most the first 100.

    `unreadable` has, by place, the faults of items that are already known. Without a declaration there are no others.
    """
    found: list[Violation] = []
    for place, text in enumerate(work.parameters):
        if place in unreadable:
            found.append(unreadable[place])
        elif declaration is not None:
            path = f"parameters_json[{place}]" if work.batch else "parameters_json"
            found += parameter_faults(text, declaration, path)
        if len(found) >= MAX_FAULTS:
            break
    return found[:MAX_FAULTS]


def parameter_faults(parameters_json: str, declaration: Declaration, path: str) -> list[Violation]:
    """Return all faults of parameters, a JSON object or "" for none; an invalid schema finds no faults."""
    try:
        given = msgspec.json.decode(parameters_json or "{}", type=dict)
    except msgspec.DecodeError as error:
        # A worker reads the whole text, so numbers out of range and halves of characters are faults as well.
        return [Violation(path, f"is not JSON: {error}")]
    faults = [
        Violation(path, f'"{name}" is required: the node has no default for it')
        for name in sorted(declaration.required - given.keys())
    ]
    schema = declaration.config_schema
    if schema and json_schema.schema_fault(schema) is None:
        faults += json_schema.faults(schema, given, path)
    return faults
