"""Which types of JSON a schema allows."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.server import json_schema
from tradewind.server.json_types import ANY, types_of


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"type": "number"}, {"integer", "number"}),
        ({"enum": ["a", None, 1.5, True]}, {"string", "null", "integer", "number", "boolean"}),
        ({"const": {}}, {"object"}),
        ({"anyOf": [{"type": "array"}, {"type": "null"}]}, {"array", "null"}),
        ({"oneOf": [{"type": "array"}, {"const": 3}]}, {"array", "integer"}),
        ({"allOf": [{"type": ["string", "null"]}, {"type": ["null", "array"]}]}, {"null"}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}, {"object"}),
        ({"$ref": "#"}, ANY),
        ({"type": "string", "allOf": [{"$ref": "#"}]}, {"string"}),
        ({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}, ANY),
        ({"$ref": "#/$defs/missing"}, ANY),
        ({"$ref": "#a", "$defs": {"a": {"$anchor": "a", "type": "string"}}, "a": {"type": "null"}}, ANY),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "null", "const": 3}, ANY),
        ({"minimum": 3}, ANY),
        ({"anyOf": [True]}, ANY),
        ({}, ANY),
    ],
)
def test_types_of_a_schema(schema: dict[str, Any], types: set[str]) -> None:
    assert types_of(json.dumps(schema)) == types


def test_chain_of_references_that_is_too_long_is_not_followed() -> None:
    chain = {f"a{at}": {"$ref": f"#/$defs/a{at + 1}"} for at in range(1000)} | {"a1000": {"type": "string"}}
    schema = json.dumps({"$ref": "#/$defs/a0", "$defs": chain})
    assert json_schema.schema_fault(schema) is None
    assert types_of(schema) == ANY


def test_no_schema_allows_every_type() -> None:
    assert types_of("") == ANY


VALUES = [None, True, 3, 2.5, "text", [1], {"a": 1}]
NAMES = dict(zip(map(repr, VALUES), ("null", "boolean", "integer", "number", "string", "array", "object"), strict=True))
SIMPLE = st.fixed_dictionaries({"type": st.sampled_from(sorted(ANY))}) | st.fixed_dictionaries(
    {"enum": st.lists(st.sampled_from(VALUES), min_size=1, max_size=3)}
)
SCHEMAS = st.recursive(
    SIMPLE,
    lambda inner: st.builds(
        lambda keyword, parts: {keyword: parts},
        st.sampled_from(["anyOf", "oneOf", "allOf"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)


@given(SCHEMAS, st.sampled_from(VALUES))
def test_type_of_every_valid_value_is_among_them(schema: dict[str, Any], value: object) -> None:
    text = json.dumps(schema)
    if not json_schema.faults(text, value):
        assert NAMES[repr(value)] in types_of(text)


@pytest.mark.parametrize(
    ("annotation", "types"),
    [(float, {"number", "integer"}), (list[int], {"array"}), (dict[str, int] | None, {"object", "null"})],
)
def test_types_of_what_msgspec_writes(annotation: Any, types: set[str]) -> None:
    assert types_of(json.dumps(msgspec.json.schema(annotation))) == types
