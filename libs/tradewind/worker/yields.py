"""What reports of a node return, so that an async node may await them."""

from collections.abc import Generator
from typing import Any


class _Yield:
    """Awaiting it gives other tasks of the loop a turn; a node need not await it."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        yield


YIELD = _Yield()
