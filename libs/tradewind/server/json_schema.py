"""Checks values against the JSON Schemas that workers declare."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jsonschema_rs

from tradewind.server.faults import Violation
from tradewind.server.hidden_values import is_hidden
from tradewind.server.nearest_name import NearestName

_MESSAGE_CHARACTERS = 300
_MAX_FAULTS = 100
# Keywords that judge a whole value by everything in it, so that a hidden value inside leaves them undecided. What `if`
# decides shows in the path of the failing keyword, as `then` or `else`.
_WHOLE_VALUE_KEYWORDS = frozenset(
    {"anyOf", "const", "contains", "enum", "not", "oneOf", "unevaluatedItems", "unevaluatedProperties", "uniqueItems"}
)
_BRANCHES = frozenset({"then", "else", "dependentSchemas", "dependencies"})

# Schemas come from workers: they must not make a server fetch documents, or spend its time on regular expressions.
_OFFLINE: dict[str, Any] = {"offline": True, "pattern_options": jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)}


def schema_fault(schema_text: str) -> str | None:
    """Return what is wrong with a schema, or None when values can be checked against it.

    A schema is a JSON object of any draft from 4 to 2020-12 (the latest when it names none) that refers to no document
    other than itself.
    """
    try:
        _compiled(schema_text)
    except ValueError as error:
        return str(error)
    return None


def faults(schema_text: str, value: object, prefix: str = "") -> list[Violation]:
    """Return everything in which `value` (as read from JSON) violates the schema, at most 100 faults.

    Paths begin with `prefix`, as in `nodes[3].config.window`. A placeholder for a value that only workers can read is
    accepted in place of any value, and what cannot be decided without that value is not a fault. Raises ValueError when
    `schema_fault` finds a fault.
    """
    found = faults_by_place(schema_text, value)
    if not found:
        return []
    known = allowed_keys(schema_text)
    nearest = NearestName(known)
    return [Violation(_path(prefix, steps), message + _key_hint(steps, known, nearest)) for steps, message in found]


def faults_by_place(schema_text: str, value: object) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the same faults, each with the keys that lead to its place within `value` instead of a path."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    for error in _compiled(schema_text).iter_errors(value):
        if _is_undecided(error, value):
            continue
        place = tuple(error.instance_path)
        if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
            # At the top level, callers say in their own words which keys exist.
            names = NearestName(_keys_beside(schema_text, error.schema_path) if place else ())
            found += [((*place, key), f"unknown key{names.hint(key)}") for key in error.kind.unexpected]
        else:
            found.append((place, _shortened(error.message)))
        if len(found) >= _MAX_FAULTS:
            break
    return found[:_MAX_FAULTS]


def allowed_keys(schema_text: str) -> list[str]:
    """Return the keys that a valid schema allows an object to have; none if it allows any key."""
    schema = json.loads(schema_text)
    return list(schema.get("properties", ())) if schema.get("additionalProperties") is False else []


def _keys_beside(schema_text: str, additional: Sequence[str | int]) -> list[str]:
    """Return the keys listed beside the `additionalProperties` to which these steps lead."""
    part = json.loads(schema_text)
    try:
        for step in additional[:-1]:
            part = part[step]
        return list(part["properties"])
    except (KeyError, IndexError, TypeError):
        return []


def _key_hint(steps: Sequence[str | int], known: Sequence[str], nearest: NearestName) -> str:
    if not known or len(steps) != 1 or steps[0] in known:
        return ""
    return nearest.hint(str(steps[0]), f"; known keys are {', '.join(known)}")


@lru_cache(maxsize=512)
def _compiled(schema_text: str) -> jsonschema_rs.Validator:
    if not schema_text.lstrip().startswith("{"):
        raise ValueError("a schema must be a JSON object")
    try:
        return jsonschema_rs.validator_for(schema_text, **_OFFLINE)
    except jsonschema_rs.ValidationError as error:
        place = _path("", error.instance_path)
        raise ValueError(_shortened(f"{place}: {error.message}" if place else error.message)) from None
    except ValueError as error:
        # The library calls the whole text a string; the rest of its message gives the line and column.
        raise ValueError(f"not JSON: {str(error).removeprefix('Invalid string: ')}") from None


def _is_undecided(error: jsonschema_rs.ValidationError, value: Any) -> bool:
    parts = [value]
    for step in error.instance_path:
        parts.append(parts[-1][step])
    if any(map(is_hidden, parts)):
        return True
    if error.kind.name in _WHOLE_VALUE_KEYWORDS and _contains_hidden(parts[-1]):
        return True
    return not _BRANCHES.isdisjoint(map(str, error.schema_path)) and _contains_hidden(value)


def _contains_hidden(value: object) -> bool:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if is_hidden(part):
            return True
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return False


def _path(prefix: str, steps: Sequence[str | int]) -> str:
    path = prefix
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.replace("-", "_").isidentifier():
            path += f".{step}" if path else step
        else:
            path += f'["{step}"]'
    return path


def _shortened(message: str) -> str:
    if len(message) <= _MESSAGE_CHARACTERS:
        return message
    # The end of a message says what was expected; its beginning quotes the value.
    kept = _MESSAGE_CHARACTERS // 2
    return f"{message[:kept]} ... {message[-kept:]}"
