"""The effects of one call to a shard in memory."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tradewind.node_task_manager.domain.node_task import NodeTask, StopMark
from tradewind.node_task_manager.ports.events import NewEvent
from tradewind.node_task_manager.ports.work import Assignment, Effects, Termination
from tradewind.node_task_manager.stores.memory.slots import Group


@dataclass
class Call:
    """The effects of one call so far."""

    assignments: list[Assignment] = field(default_factory=list)
    terminations: list[Termination] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)
    ready_types: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    due_in: int = -1
    lost: int = 0
    tokens: list[int] = field(default_factory=list)
    """In how many ms a node task may begin, for each type whose rate keeps node tasks waiting."""
    work: deque[tuple[tuple[str, str], Callable[[], None]]] = field(default_factory=deque)
    """Consequences that have yet to be carried out, with the components that they are about."""
    owed: Counter[Group] = field(default_factory=Counter)
    """Groups whose node tasks another limit held back: each has room for another node task."""

    def terminate(self, task: NodeTask, mark: StopMark) -> None:
        """Ask the worker of a running node task to stop it."""
        self.terminations.append(Termination(task.worker_id, task.task_id, task.attempt, task.nonce, mark))

    def effects(self) -> Effects:
        return Effects(
            assignments=tuple(self.assignments),
            terminations=tuple(self.terminations),
            events=tuple(self.events),
            ready_types=tuple(self.ready_types),
            stale_workers=tuple(self.stale),
            results=tuple(self.results),
            due_in=self.due_in,
            lost=self.lost,
        )
