"""Ready node tasks of one shard in memory, by type and user: users in turn, each user's by priority and age."""

import math
from collections.abc import Callable, Iterator

from tradewind.node_task_manager.domain.plan import ITEMS_A_MS, PRIORITY_MS

HEADS = 32
TURN = 1_000_000
"""What a turn costs a user of weight 1; costs are whole numbers, so that sums are exact."""


class MemoryQueues:
    """The queues; `clock` returns epoch ms."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._queues: dict[str, dict[str, dict[str, float]]] = {}
        self._turns: dict[str, dict[str, int]] = {}
        self._left: dict[str, dict[str, int]] = {}
        """Where users stood in the ring when they left it while others had turns."""
        self._begun: dict[str, int] = {}
        """Where in the ring the last turn of each type began."""
        self._joining: list[tuple[str, str]] = []
        self._fresh: set[str] = set()
        self._parked: set[tuple[str, str]] = set()
        self.served: dict[str, int] = {}
        """When each type that has node tasks waiting was served last."""
        self.waits: dict[str, int] = {}
        """When the wait of each node task is over."""

    @property
    def empty(self) -> bool:
        """Whether no node task waits here."""
        return not any(queue for queues in self._queues.values() for queue in queues.values())

    def place(self, node_type: str, user: str, task_id: str) -> tuple[int, int, int]:
        """Return a node task's rank in its queue (-1 if it is not there), the queue's length, and how many other users
        have turns."""
        queue = _ordered(self._queues.get(node_type, {}).get(user, {}))
        rank = queue.index(task_id) if task_id in queue else -1
        return rank, len(queue), max(0, len(self._turns.get(node_type, {})) - 1)

    def put(self, node_type: str, user: str, task_id: str, start_by: int, priority: int, place: int) -> None:
        """Queue a node task, which may wait until `start_by`, 0 for ever. A step of priority is worth a minute's wait.

        An item of a list or a batch is a moment behind the one before; `place` is its place, 0 for other node tasks.
        """
        rank = self._clock() - priority * PRIORITY_MS + place / ITEMS_A_MS
        self._queues.setdefault(node_type, {}).setdefault(user, {})[task_id] = rank
        self._joining.append((node_type, user))
        self._fresh.add(node_type)
        if start_by:
            self.waits[task_id] = start_by

    def take_fresh(self) -> list[str]:
        """Return the types that have had a node task queued since the last call and have some waiting."""
        fresh, self._fresh = self._fresh, set()
        return sorted(fresh & self.served.keys())

    def drop(self, node_type: str, user: str, task_id: str) -> None:
        """Take out a node task."""
        self._queues.get(node_type, {}).get(user, {}).pop(task_id, None)
        self.waits.pop(task_id, None)

    def queued(self, user: str) -> int:
        """Return how many node tasks of a user wait."""
        return sum(len(queues.get(user, ())) for queues in self._queues.values())

    def heads(self) -> Iterator[tuple[str, str, int, str]]:
        """Yield each queue that is not empty: its type, user, length and first node task."""
        for node_type, queues in sorted(self._queues.items()):
            for user, queue in sorted(queues.items()):
                if queue:
                    yield node_type, user, len(queue), _ordered(queue)[0]

    def put_back(self, node_type: str, user: str, task_id: str, rank: float) -> None:
        """Queue a node task again where it stood."""
        self._queues.setdefault(node_type, {}).setdefault(user, {})[task_id] = rank
        self._joining.append((node_type, user))

    def park(self, node_type: str, user: str) -> None:
        """Pass over a user who is at the limit, until the user is unparked or has new node tasks."""
        self._parked.add((node_type, user))
        self._leave(node_type, user)
        self.tidy()

    def unpark(self, user: str) -> None:
        """Let a user take turns again."""
        back = [each for each in self._parked if each[1] == user]
        self._parked.difference_update(back)
        self._joining += back

    def unpark_all(self) -> None:
        """Let every user take turns again."""
        for _, user in list(self._parked):
            self.unpark(user)

    def tidy(self) -> None:
        """Bring the ring of each type up to date: users with an empty queue leave, and users with new node tasks join.

        They join where the last turn began, or where they stood when they left, if that is later. So a newcomer is
        next, and nobody gains or loses turns by having had no node tasks, not even a user who has one at a time.
        """
        for node_type, queues in self._queues.items():
            turns = self._turns.setdefault(node_type, {})
            for user in [user for user in turns if not queues.get(user)]:
                self._leave(node_type, user)
            left = self._left.setdefault(node_type, {})
            if not turns:
                left.clear()
                self._begun.pop(node_type, None)
                self.served.pop(node_type, None)
            place = self._begun.get(node_type, 0)
            for user in [user for at, user in self._joining if at == node_type and queues.get(user)]:
                if user not in turns:
                    turns[user] = max(place, left.pop(user, 0))
            if turns:
                self.served.setdefault(node_type, self._clock())
        self._joining = []

    def _leave(self, node_type: str, user: str) -> None:
        self._left.setdefault(node_type, {})[user] = self._turns[node_type].pop(user)

    def turn(self, node_type: str) -> tuple[str, bool] | None:
        """Return the user whose turn it is, and whether no other user waits; None when nobody is left."""
        turns = self._turns.get(node_type)
        if not turns:
            return None
        user = min(turns, key=lambda user: (turns[user], user))
        self._begun[node_type] = turns[user]
        return user, len(turns) == 1

    def take(self, node_type: str, user: str, count: int) -> list[tuple[str, float]]:
        """Take out the first `count` of a user's node tasks, with their places in the queue."""
        queue = self._queues[node_type][user]
        return [(task_id, queue.pop(task_id)) for task_id in _ordered(queue)[:count]]

    def end_turn(self, node_type: str, user: str, taken: int, weight: float) -> None:
        """Charge a user for `taken` turns; the greater the weight, the less each costs."""
        cost = math.floor(TURN / weight + 0.5)
        self._begun[node_type] += max(taken - 1, 0) * cost
        self._turns[node_type][user] += taken * cost
        self.tidy()


def _ordered(queue: dict[str, float]) -> list[str]:
    return sorted(queue, key=lambda task_id: (queue[task_id], task_id))
