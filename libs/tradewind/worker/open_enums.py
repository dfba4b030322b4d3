"""Enums that also read other values than those of their members: flags, and those with a `_missing_` of their own."""

import inspect
from collections.abc import Iterable
from enum import Enum
from typing import Any

from tradewind.worker.type_parts import parts_of


def with_open_enums(schema: dict[str, Any], annotations: Iterable[Any]) -> dict[str, Any]:
    """Return a schema of these types in which such an enum allows every value of its type, with members as examples.

    msgspec and pydantic both allow members only: a flag could not have two bits.
    """
    parts = [part for annotation in annotations for part in parts_of(annotation)]
    enums = [(part.__name__, [each.value for each in part]) for part in parts if _is_open(part)]
    opened: dict[str, Any] = _opened(schema, enums) if enums else schema
    return opened


def _is_open(part: Any) -> bool:
    if not (isinstance(part, type) and issubclass(part, Enum)):
        return False
    own, standard = inspect.getattr_static(part, "_missing_"), inspect.getattr_static(Enum, "_missing_")
    return own is not standard


def _opened(schema: Any, enums: list[tuple[str, list[Any]]]) -> Any:
    if isinstance(schema, list):
        return [_opened(each, enums) for each in schema]
    if not isinstance(schema, dict):
        return schema
    members = schema.get("enum", [schema.get("const")])
    # pydantic also lists a flag's names for several bits.
    if not any(schema.get("title") == title and all(value in members for value in values) for title, values in enums):
        return {name: _opened(each, enums) for name, each in schema.items()}
    kept = {name: each for name, each in schema.items() if name not in ("enum", "const")}
    return kept | {"type": "string" if isinstance(members[0], str) else "integer", "examples": members}
