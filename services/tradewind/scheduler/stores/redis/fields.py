"""Whole records as Redis returns them."""

from typing import Any


def fields_of(reply: Any) -> dict[str, str]:
    """Return the fields in a reply to HGETALL: alternating names and values, or a mapping after a redirection."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(): value.decode() for name, value in pairs}
