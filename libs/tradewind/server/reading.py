"""Tells records that somebody has changed by hand from faults of the code that reads them."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tradewind.server.faults import Unreadable

_FAULTS = (ValueError, LookupError, TypeError, msgspec.MsgspecError)
"""What decoding such a record raises."""


@contextmanager
def reading(key: str) -> Iterator[None]:
    """Raise Unreadable instead of what decoding the record under `key` raises."""
    try:
        yield
    except _FAULTS as error:
        raise Unreadable(key, repr(error)) from error
