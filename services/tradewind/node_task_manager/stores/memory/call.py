"""The effects of one call to a shard in memory."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tradewind.node_task_manager.domain.fan_out import FanOutOffer
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
    tokens: list[int] = field(default_factory=list)
    """In how many ms a node task may begin, for each type whose rate keeps node tasks waiting."""
    fan_outs: list[FanOutOffer] = field(default_factory=list)
    work: deque[tuple[tuple[str, str], str | Callable[[], None] | None]] = field(default_factory=deque)
    """Ended node tasks whose signals to deliver, components to stop (None), and other work (callables)."""
    owed: Counter[Group] = field(default_factory=Counter)
    """Groups whose node tasks another limit held back: each has room for another node task."""

    def effects(self) -> Effects:
        return Effects(
            tuple(self.assignments),
            tuple(self.terminations),
            tuple(self.events),
            tuple(self.ready_types),
            tuple(self.stale),
            0,
            tuple(self.results),
            self.due_in,
            tuple(self.fan_outs),
        )
