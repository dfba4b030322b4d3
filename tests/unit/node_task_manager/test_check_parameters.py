"""Parameters of ad-hoc tasks, judged by what workers have declared."""

import json

import pytest

from tradewind.node_task_manager.ports.workers import Declaration
from tradewind.node_task_manager.use_cases.check_parameters import parameter_faults

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {}}, "additionalProperties": False}


def faults(parameters_json: str, schema: str = json.dumps(SCHEMA)) -> list[tuple[str, str]]:
    found = parameter_faults(parameters_json, Declaration(frozenset({"x"}), schema), "parameters_json")
    return [(fault.path, fault.message) for fault in found]


@pytest.mark.parametrize(
    "parameters",
    ['{"x":1}', '{"x":1,"y":[]}', '{"x":{"$secret":"a"}}', '{"x":{"$encoded":"AAAA"}}', f'{{"x":{10**30}}}'],
)
def test_valid_parameters_have_no_faults(parameters: str) -> None:
    assert faults(parameters) == []


def test_every_fault_is_reported() -> None:
    assert faults('{"y":1,"z":2}') == [
        ("parameters_json", '"x" is required: the node has no default for it'),
        ("parameters_json.z", "unknown key; known keys are x, y"),
    ]
    assert faults("") == [("parameters_json", '"x" is required: the node has no default for it')]
    assert faults('{"x":"one"}') == [("parameters_json.x", '"one" is not of type "integer"')]


@pytest.mark.parametrize("parameters", ['{"x":1e400}', r'{"x":"\ud800"}'])
def test_unreadable_json_is_refused(parameters: str) -> None:
    ((path, message),) = faults(parameters)
    assert path == "parameters_json"
    assert message.startswith("is not JSON: ")


@pytest.mark.parametrize("schema", ["", "[1]", '{"type": 7}', '{"$ref": "#/nowhere"}'])
def test_invalid_schema_reports_no_faults(schema: str) -> None:
    assert faults('{"x":1,"z":2}', schema) == []
