"""Whole records as Redis returns them."""

from collections.abc import Iterable
from typing import Any


def fields_of(reply: Any) -> dict[str, str]:
    """Return the fields in a reply to HGETALL."""
    return {name.decode(): value.decode() for name, value in pairs_of(reply)}


def pairs_of(reply: Any) -> Iterable[tuple[bytes, bytes]]:
    """Return names and values in a reply to HGETALL: they alternate, or it is a mapping after a redirection."""
    return reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
