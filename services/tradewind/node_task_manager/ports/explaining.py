"""What explaining reads of queues and limits."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Holders:
    """How many node tasks hold a slot of a limit, and the ids of some: those that have held it longest or, for leases,
    those that end first."""

    count: int
    task_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """How many node tasks of its user stand before a node task in its queue (-1 if it is not there), how many stand in
    the queue, and how many other users have turns."""

    before: int
    queued: int
    other_users: int


class WaitReader(Protocol):
    """Reads what a node task waits behind."""

    async def holders(self, limit: str, most: int) -> Holders:
        """Return the holders of a limit, with up to `most` ids; `running` stands for leases."""
        ...

    async def full_in_us(self, bucket: str) -> int:
        """Return in how many microseconds a bucket of tokens is full."""
        ...

    async def place(self, node_type: str, user_id: str, task_id: str) -> Place:
        """Return where a node task stands in the queue of its type and user."""
        ...
