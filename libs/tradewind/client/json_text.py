"""JSON text, to and from Python's own values."""

import math
from typing import Any

import msgspec


def encode(value: object) -> str:
    """Return compact JSON text. Raises ValueError that names what JSON cannot say."""
    try:
        text = msgspec.json.encode(value, enc_hook=_refuse)
        # msgspec writes NaN and infinities as null, so only a text with a null in it needs a look at the value.
        if b"null" in text:
            _refuse_non_finite(msgspec.to_builtins(value, enc_hook=_refuse))
        return text.decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"this is no JSON: {error}") from error


def decode(text: str) -> Any:
    """Return what JSON text says, None for empty text."""
    return msgspec.json.decode(text) if text else None


def _refuse_non_finite(value: object) -> None:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, float) and not math.isfinite(each):
            raise ValueError(f"{each} is no number in JSON")
        if isinstance(each, dict):
            waiting.extend(each.values())
        elif isinstance(each, list | tuple):
            waiting.extend(each)


def _refuse(value: object) -> object:
    raise TypeError(f"a value of type {type(value).__name__}: {value!r:.80}")
