"""Values as JSON text, the same for nodes and clients."""

import functools
import math
from collections.abc import Callable
from typing import Any

import msgspec


def encode_json(value: Any, enc_hook: Callable[[Any], Any] | None = None, path: str = "the value") -> bytes:
    """Return compact JSON text; `enc_hook` turns what msgspec does not know into what it does.

    Raises ValueError for what JSON cannot say: NaN and infinities, which it does not have, by their place below `path`.
    """
    try:
        text = _encoder(enc_hook)(value)
        # msgspec writes NaN and infinities as null, so only a text with a null in it needs a look at the value.
        if value is not None and text.find(b"null") >= 0:
            _refuse_non_finite(msgspec.to_builtins(value, enc_hook=enc_hook), path)
    except (TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from error
    return text


@functools.cache
def _encoder(enc_hook: Callable[[Any], Any] | None) -> Callable[[Any], bytes]:
    return msgspec.json.Encoder(enc_hook=enc_hook).encode


def _refuse_non_finite(value: Any, path: str) -> None:
    waiting = [(path, value)]
    while waiting:
        at, item = waiting.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise ValueError(f"{at} is {item}; give null or leave it out")
        if isinstance(item, dict):
            waiting.extend((f"{at}.{key}", inner) for key, inner in item.items())
        elif isinstance(item, list | tuple):
            waiting.extend((f"{at}[{index}]", inner) for index, inner in enumerate(item))
