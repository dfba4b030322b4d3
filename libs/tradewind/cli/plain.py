"""What the client returns, as JSON: field names unchanged, statuses as words, times in ISO 8601."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from tradewind.cli.screen import iso
from tradewind.server.visible import visible_json


def to_json(value: object, indent: int | None = None) -> str:
    """Return JSON text."""
    return visible_json(json.dumps(plain(value), indent=indent, ensure_ascii=False))


def plain(value: object) -> Any:
    """Return a value in JSON types; a length of time becomes seconds.

    A field of JSON text such as `config_json` becomes `config`, null when empty.
    """
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if is_dataclass(value) and not isinstance(value, type):
        return dict(_field(field.name, getattr(value, field.name)) for field in fields(value))
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [plain(each) for each in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _field(name: str, value: object) -> tuple[str, Any]:
    if name.endswith("_json") and isinstance(value, str):
        return name.removesuffix("_json"), json.loads(value) if value else None
    return name, plain(value)
