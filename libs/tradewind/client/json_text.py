"""JSON text, to and from Python's own values."""

from typing import Any

import msgspec

from tradewind.flow.json_text import encode_json


def encode(value: object, name: str = "the value") -> str:
    """Return compact JSON text. Raises ValueError that names what JSON cannot hold, and where in `name` it is."""
    try:
        return encode_json(value, name).decode()
    except ValueError as error:
        raise ValueError(f"{name} is not JSON: {error}") from error


def decode(text: str) -> Any:
    """Return the value of JSON text, None for empty text."""
    return msgspec.json.decode(text) if text else None
