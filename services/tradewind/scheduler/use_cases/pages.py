"""Pages of answers: bounded by what is asked for, and by what goes into one message."""

from typing import Generic, TypeVar

MESSAGE_BYTES = 512 * 1024

Item = TypeVar("Item")


class Page(Generic[Item]):
    """Up to `limit` items: fewer where they would not go into one message, but one at least."""

    def __init__(self, limit: int) -> None:
        self.items: list[Item] = []
        self._limit = limit
        self._room = MESSAGE_BYTES

    def add(self, item: Item, size: int) -> bool:
        """Add an item of about `size` bytes; return whether there was room for it."""
        self._room -= size
        if self.items and (len(self.items) == self._limit or self._room < 0):
            return False
        self.items.append(item)
        return True
