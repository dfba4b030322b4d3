"""JSON text, to and from Python's own values."""

from typing import Any

import msgspec


def encode(value: object) -> str:
    """Return compact JSON text. Raises ValueError that names what JSON cannot say."""
    try:
        return msgspec.json.encode(value, enc_hook=_refuse).decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"this is no JSON: {error}") from error


def decode(text: str) -> Any:
    """Return what JSON text says, None for empty text."""
    return msgspec.json.decode(text) if text else None


def _refuse(value: object) -> object:
    raise TypeError(f"a value of type {type(value).__name__}: {value!r:.80}")
