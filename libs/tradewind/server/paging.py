"""Pages of a list: how many entries a page has, and the opaque token that says where the next page begins."""

import base64
import binascii
from typing import Generic, Protocol, TypeVar

import msgspec

from tradewind.server.all_faults import every
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import require_identifiers

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 1000
MESSAGE_BYTES = 512 * 1024
"""How much text goes into one message where sizes are in characters, each of which may take four bytes."""

NOT_OF_THIS_LIST = "is not a page token of this list; pass a next_page_token unchanged, or nothing"
"""What is wrong with a page token that this list did not issue."""

Position = TypeVar("Position")
Item = TypeVar("Item")


class Page(Generic[Item]):
    """Up to `limit` items: fewer if they would not fit into one message, but at least one."""

    def __init__(self, limit: int, room: int = MESSAGE_BYTES) -> None:
        self.items: list[Item] = []
        self._limit = limit
        self._room = room

    def add(self, item: Item, size: int) -> bool:
        """Add an item of about `size` bytes; return whether there was room for it."""
        self._room -= size
        if self.items and (len(self.items) == self._limit or self._room < 0):
            return False
        self.items.append(item)
        return True


class Paged(Protocol):
    """A request for a page of a list."""

    page_size: int
    page_token: str


def page_of(request: Paged, shape: type[Position], **identifiers: str) -> tuple[Position | None, int]:
    """Return where a page begins, None for the first page, and the most entries that it may have.

    Raises InvalidInput with every fault of `page_token`, `page_size` and the `identifiers`, given by their paths.
    """
    _, position, size = every(
        lambda: require_identifiers(**identifiers),
        lambda: page_position(request.page_token, shape),
        lambda: page_size_of(request.page_size),
    )
    return position, size


def page_size_of(requested: int) -> int:
    """Return how many entries a page has: 50 for 0, at most 1000. Raises InvalidInput when `requested` is negative."""
    if requested < 0:
        raise InvalidInput([Violation("page_size", f"must not be negative, is {requested}")])
    return min(requested or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)


def page_token(position: object | None) -> str:
    """Return the token for `position` (anything msgspec encodes), where the next page begins; "" for None, the end."""
    if position is None:
        return ""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(position)).decode().rstrip("=")


def page_position(token: str, shape: type[Position]) -> Position | None:
    """Return the position in a token; None for the empty token of a first page.

    Raises InvalidInput when the token was not issued by this call.
    """
    if not token:
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(raw, type=shape)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise InvalidInput([Violation("page_token", NOT_OF_THIS_LIST)]) from None
