"""Values against declared schemas: paths, secrets, and schemas that must not be trusted."""

import json
from typing import Any

import pytest

from tradewind.server.faults import Violation
from tradewind.server.hidden_values import is_hidden
from tradewind.server.json_schema import faults, schema_fault

SECRET = {"$secret": "api_key"}


def check(schema: dict[str, Any], value: object, at: str = "") -> list[Violation]:
    return faults(json.dumps(schema), value, at)


def paths(schema: dict[str, Any], value: object, at: str = "") -> list[str]:
    return sorted(violation.path for violation in check(schema, value, at))


def test_valid_value_has_no_faults() -> None:
    schema = {"type": "object", "properties": {"window": {"type": "integer", "minimum": 1}}}
    assert check(schema, {"window": 20}) == []
    assert check(schema, {}) == []


def test_null_is_a_value_like_others() -> None:
    assert [fault.message for fault in check({"enum": [1]}, None)] == ["null is not one of 1"]


def test_every_fault_has_its_path() -> None:
    schema = {
        "type": "object",
        "properties": {
            "window": {"type": "integer"},
            "orders": {"items": {"properties": {"price": {"minimum": 0}}}},
            "a b": {"type": "string"},
        },
        "required": ["symbol"],
    }
    value = {"window": "twenty", "orders": [{"price": 1}, {"price": -1}], "a b": 1}
    at = "nodes[3].config"
    assert paths(schema, value, at) == [
        "nodes[3].config",
        "nodes[3].config.orders[1].price",
        "nodes[3].config.window",
        'nodes[3].config["a b"]',
    ]


def test_path_without_a_prefix_starts_with_the_first_name() -> None:
    assert paths({"properties": {"window": {"type": "integer"}}}, {"window": "x"}) == ["window"]
    assert paths({"items": {"type": "integer"}}, ["x"]) == ["[0]"]


def test_messages_name_the_expected_type_and_stay_short() -> None:
    (violation,) = check({"type": "integer"}, "x" * 10_000)
    assert violation.message.endswith('is not of type "integer"')
    assert len(violation.message) < 320


def test_faults_of_conditional_parts_are_found() -> None:
    schema = {"if": {"properties": {"kind": {"const": "limit"}}}, "then": {"required": ["price"]}}
    assert [fault.message for fault in check(schema, {"kind": "limit"})] == ['"price" is a required property']
    assert check(schema, {"kind": "market"}) == []


def test_message_about_a_known_key_suggests_no_other() -> None:
    closed = {"properties": {"window": {"type": "integer"}}, "additionalProperties": False}
    for schema in (closed, {"properties": closed["properties"]}):
        (fault,) = check(schema, {"window": "x"})
        assert fault.message == '"x" is not of type "integer"'


def test_the_number_of_faults_is_bounded() -> None:
    assert len(check({"items": {"type": "integer"}}, ["x"] * 10_000)) == 100


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, SECRET),
        ({"properties": {"key": {"type": "string", "minLength": 20}}}, {"key": SECRET}),
        ({"properties": {"key": {"enum": ["a", "b"]}}}, {"key": SECRET}),
        ({"properties": {"key": {"type": "object", "additionalProperties": False}}}, {"key": SECRET}),
        ({"additionalProperties": {"type": "integer"}}, {"key": SECRET}),
        ({"items": {"type": "number"}}, [1, SECRET]),
        ({"anyOf": [{"properties": {"key": {"type": "string"}}}, {"type": "null"}]}, {"key": SECRET}),
        (
            {"oneOf": [{"properties": {"key": {"const": "a"}}}, {"properties": {"key": {"const": "b"}}}]},
            {"key": SECRET},
        ),
        ({"not": {"properties": {"key": {"type": "object"}}}}, {"key": SECRET}),
        ({"contains": {"const": "a"}}, [SECRET]),
        ({"uniqueItems": True}, [SECRET, SECRET]),
        ({"if": {"properties": {"key": {"type": "object"}}}, "then": {"required": ["other"]}}, {"key": SECRET}),
        ({"properties": {"key": {"type": "string"}}, "unevaluatedProperties": False}, {"key": SECRET}),
        ({"$ref": "#/$defs/k", "$defs": {"k": {"properties": {"key": {"type": "string"}}}}}, {"key": SECRET}),
    ],
)
def test_a_secret_is_accepted_in_place_of_any_value(schema: dict[str, Any], value: object) -> None:
    assert check(schema, value) == []


def test_an_encoded_value_is_accepted_in_place_of_any_value() -> None:
    schema = {"properties": {"window": {"type": "integer"}, "mode": {"enum": ["fast", "slow"]}}}
    assert check(schema, {"window": {"$encoded": "AAAA"}, "mode": {"$encoded": "AAAA"}}) == []


def test_unknown_key_is_reported_with_the_nearest_or_all_known_keys() -> None:
    schema = {"properties": {"window": {"type": "integer"}, "mode": {}}, "additionalProperties": False}
    assert check(schema, {"widow": 1, "x": 2}, "config") == [
        Violation("config.widow", 'unknown key; did you mean "window"?'),
        Violation("config.x", "unknown key; known keys are window, mode"),
    ]


def test_unknown_key_within_an_object_is_reported_with_the_nearest() -> None:
    limits = {"properties": {"urgent": {"type": "integer"}}, "additionalProperties": False}
    schema = {"properties": {"limits": {"$ref": "#/$defs/l"}, "all": {"items": limits}}, "$defs": {"l": limits}}
    assert check(schema, {"limits": {"urgnt": 1}, "all": [{"x": 1}]}, "config") == [
        Violation("config.limits.urgnt", 'unknown key; did you mean "urgent"?'),
        Violation("config.all[0].x", "unknown key"),
    ]


def test_faults_beside_a_secret_are_still_found() -> None:
    schema = {
        "properties": {"key": {"type": "string"}, "window": {"type": "integer"}, "mode": {"enum": ["fast", "slow"]}},
        "required": ["symbol"],
        "additionalProperties": False,
    }
    found = check(schema, {"key": SECRET, "window": "x", "mode": "late", "more": 1})
    assert sorted(violation.path for violation in found) == ["", "mode", "more", "window"]


@pytest.mark.parametrize("value", [{"$secret": 1}, {"$secret": "a", "b": 1}, {}, "a", None, ["$secret"]])
def test_near_miss_of_a_secret_is_an_ordinary_value(value: object) -> None:
    assert not is_hidden(value)
    assert check({"type": "integer"}, value)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("", "must be a JSON object"),
        ("[1]", "must be a JSON object"),
        ("true", "must be a JSON object"),
        ('{"type":', "not JSON: EOF while parsing a value at line 1 column 8"),
        ('{"not":' * 5_000 + "{}" + "}" * 5_000, "not JSON: recursion limit exceeded"),
        ('{"properties": {"a": {"type": "strng"}}}', "properties.a.type: "),
        ('{"pattern": "("}', "pattern: "),
        ('{"$ref": "#/$defs/a"}', "/$defs/a"),
        ('{"$ref": "http://example.com/x"}', "Retrieval is disabled"),
        ('{"$ref": "file:///etc/hostname"}', "Retrieval is disabled"),
        ('{"$schema": "http://example.com/draft"}', "Unknown meta-schema"),
    ],
)
def test_invalid_schema_is_rejected_with_a_reason(schema: str, reason: str) -> None:
    fault = schema_fault(schema)
    assert fault is not None
    assert reason in fault
    with pytest.raises(ValueError, match=r"."):
        faults(schema, {})


@pytest.mark.parametrize(
    "schema",
    [
        "{}",
        ' {"type": "object"}',
        '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}',
        '{"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}',
        '{"properties": {"symbol": {"pattern": "^(?=[A-Z])"}}}',
        '{"properties": {"child": {"$ref": "#"}}}',
    ],
)
def test_schemas_without_outside_references_are_accepted(schema: str) -> None:
    assert schema_fault(schema) is None
    assert faults(schema, {"child": {"child": {}}}) == []


def test_hostile_pattern_takes_bounded_time() -> None:
    schema = {"pattern": r"^(a|a)*\1(?=b)$"}
    assert len(check(schema, "a" * 40)) == 1


def test_values_may_be_nested_deeply() -> None:
    value: Any = 1
    for _ in range(900):
        value = {"child": value}
    assert check({"properties": {"child": {"$ref": "#"}}}, value) == []
