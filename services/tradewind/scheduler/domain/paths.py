"""How faults name a place in a flow definition: `nodes[2].config.window`, `edges[3].target`."""

import re
from collections.abc import Iterable
from functools import reduce

from tradewind.server.quoting import quoted

_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]{0,63}", re.ASCII)


def join(path: str, key: str | int) -> str:
    """Return the path of the field `key`, or of the item at index `key`, within the value at `path`; "" is the root."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{quoted(key)}]"
    return f"{path}.{key}" if path else key


def join_all(path: str, keys: Iterable[str | int]) -> str:
    """Return the path of the value that `keys` lead to, one after the other, from the value at `path`."""
    return reduce(join, keys, path)


def shown(value: object) -> str:
    """Return a JSON value as a message shows it: text and numbers as they are, anything larger by its kind."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value)
        case int() | float():
            return repr(value) if isinstance(value, float) or abs(value) < 10**30 else "a number of more than 30 digits"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a {type(value).__name__}"
