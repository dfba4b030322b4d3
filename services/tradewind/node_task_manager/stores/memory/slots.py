"""Slots of one shard in memory: which node tasks hold a slot of which limit, and which wait for one."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tradewind.server.rates import KeyRate

Most = int | KeyRate
"""How many node tasks a limit lets run, or begin in a period."""


class Limit(NamedTuple):
    """A limit that a node task runs under, and how many it lets run, or begin in a period."""

    name: str
    most: Most


class Group(NamedTuple):
    """Node tasks of one type and user that wait for the same limit."""

    limit: Limit
    node_type: str
    user: str


class MemorySlots:
    """The slots, and the node tasks that limits hold back."""

    def __init__(self) -> None:
        self._held: dict[str, set[str]] = {}
        self._blocked: dict[Group, dict[str, float]] = {}
        self.freed: Counter[str] = Counter()
        """How many slots of each limit came free since this was last emptied."""
        self.spared: Counter[Group] = Counter()
        """How many of each group were let in since then and take no slot after all."""

    def held(self, limit: str) -> int:
        """Return how many node tasks hold a slot."""
        return len(self._held.get(limit, ()))

    def holders(self, limit: str) -> set[str]:
        """Return the node tasks that hold a slot."""
        return set(self._held.get(limit, ()))

    def take(self, task_id: str, names: Iterable[str]) -> None:
        """Give a slot of each limit to a node task."""
        for limit in names:
            self._held.setdefault(limit, set()).add(task_id)

    def free(self, task_id: str, names: Iterable[str]) -> None:
        """Take back a node task's slot of each limit."""
        for limit in names:
            self._held[limit].remove(task_id)
            self.freed[limit] += 1

    def block(self, group: Group, task_id: str, rank: float) -> None:
        """Put a node task aside, with its place in the queue."""
        self._blocked.setdefault(group, {})[task_id] = rank

    def unblock(self, task_id: str) -> None:
        """Take out a node task that was put aside."""
        for waiting in self._blocked.values():
            waiting.pop(task_id, None)

    def waiting(self, group: Group) -> list[str]:
        """Return the waiting node tasks of a group, in queue order."""
        found = self._blocked.get(group, {})
        return sorted(found, key=lambda task_id: (found[task_id], task_id))

    def waiting_for(self, limit: str) -> list[str]:
        """Return the node tasks that wait for a limit, of all groups, in queue order."""
        ranks = {task_id: rank for group in self.groups(limit) for task_id, rank in self._blocked[group].items()}
        return sorted(ranks, key=lambda task_id: (ranks[task_id], task_id))

    def blocked(self, user: str) -> int:
        """Return how many node tasks of a user wait for limits."""
        return sum(len(waiting) for group, waiting in self._blocked.items() if group.user == user)

    def held_back(self) -> Counter[tuple[str, str]]:
        """Return how many node tasks wait for limits, by type and user."""
        found: Counter[tuple[str, str]] = Counter()
        for group, waiting in self._blocked.items():
            if waiting:
                found[group.node_type, group.user] += len(waiting)
        return found

    def readmit(self, limit: str, count: int) -> list[tuple[Group, str, float]]:
        """Take out up to `count` of each group that waits for a limit with room, with their places in the queue."""
        back = []
        for group in self._blocked:
            name, most = group.limit
            if name == limit and isinstance(most, int) and most > self.held(limit):
                back += self.remove(group, count)
        return back

    def groups(self, limit: str) -> list[Group]:
        """Return the groups that have node tasks waiting for a limit."""
        return [group for group, waiting in self._blocked.items() if group.limit.name == limit and waiting]

    def readmit_all(self) -> list[tuple[Group, str, float]]:
        """Take out all waiting node tasks."""
        return [each for group, waiting in self._blocked.items() for each in self.remove(group, len(waiting))]

    def remove(self, group: Group, count: int) -> list[tuple[Group, str, float]]:
        """Take out up to `count` of a group, with their places in the queue."""
        waiting = self._blocked.get(group, {})
        return [(group, task_id, waiting.pop(task_id)) for task_id in self.waiting(group)[:count]]
