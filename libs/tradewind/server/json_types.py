"""Which of JSON's types a JSON Schema allows."""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

JsonTypes: TypeAlias = frozenset[str]
"""Names of types as in JSON Schema. "number" never comes without "integer", since each integer is a number."""

ANY: JsonTypes = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
ARRAY: JsonTypes = frozenset({"array"})

_NOT_READ = ("$schema", "$id", "$anchor", "$dynamicAnchor")
_OF_PYTHON = {list: "array", bool: "boolean", int: "integer", type(None): "null", dict: "object", str: "string"}


@lru_cache(maxsize=512)
def types_of(schema_text: str) -> JsonTypes:
    """Return the types that values may have by a valid schema; all of them where it does not say, or is "".

    A type that only other keywords rule out, such as `not`, may be among them. Schemas of named drafts, with names for
    their parts, or nested too deeply to be followed are not read: they allow all types.
    """
    if not schema_text or any(f'"{keyword}"' in schema_text for keyword in _NOT_READ):
        return ANY
    try:
        return _Schema(json.loads(schema_text)).types
    except RecursionError:
        return ANY


class _Schema:
    """A schema, each of whose references is followed once: it may refer to itself."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole
        self._followed: dict[str, JsonTypes] = {}
        self.types = self._allowed(whole)

    def _allowed(self, part: Any) -> JsonTypes:
        if not isinstance(part, dict):
            return ANY
        allowed = ANY
        if "type" in part:
            named = part["type"]
            allowed &= _with_integers([named] if isinstance(named, str) else named)
        if "enum" in part or "const" in part:
            values = part["enum"] if "enum" in part else [part["const"]]
            allowed &= _with_integers(_OF_PYTHON.get(type(value), "number") for value in values)
        for keyword in ("anyOf", "oneOf"):
            if keyword in part:
                allowed &= frozenset().union(*map(self._allowed, part[keyword]))
        for each in part.get("allOf", ()):
            allowed &= self._allowed(each)
        return allowed & self._referred(part["$ref"]) if "$ref" in part else allowed

    def _referred(self, reference: str) -> JsonTypes:
        if reference not in self._followed:
            self._followed[reference] = ANY
            self._followed[reference] = self._allowed(self._at(reference))
        return self._followed[reference]

    def _at(self, reference: str) -> Any:
        """Return the part that a reference within the schema leads to; None for one that cannot be followed."""
        part = self._whole
        for step in reference.split("/")[1:]:
            part = part.get(step) if isinstance(part, Mapping) else None
        return part if reference.startswith("#") else None


def _with_integers(names: Iterable[str]) -> JsonTypes:
    found = frozenset(names)
    return found | {"integer"} if "number" in found else found
