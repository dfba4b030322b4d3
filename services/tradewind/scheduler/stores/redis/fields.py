"""Whole records as Redis gives them."""

from typing import Any


def fields_of(reply: Any) -> dict[str, str]:
    """Return the fields of a record as HGETALL gives them: names and values in turns, a mapping after a redirection."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(): value.decode() for name, value in pairs}
