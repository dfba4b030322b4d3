"""Watching a task whose record is ahead of the events read so far."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.task_event import STATUSES, TaskEvent, TaskEventKind
from tradewind.node_task_manager.ports.reading import Stretch
from tradewind.node_task_manager.use_cases.task_views import TaskView
from tradewind.node_task_manager.use_cases.watch_streams import StreamWatch
from tradewind.node_task_manager.use_cases.watch_task import WatchTask

NAME = "task:a"


class Watched:
    """A suspended ad-hoc task and its events; each of `later` happens once a read has found nothing new."""

    def __init__(self, *later: Sequence[TaskEventKind]) -> None:
        self.streams = StreamWatch()
        self._record = NodeTask(NAME, NodeTaskStatus.REGISTERED, "0", 0)
        self._events: list[TaskEvent] = []
        self._later = list(later)
        self._happen(TaskEventKind.SUSPENDED)

    async def task(self, _task_id: str, _user_id: str, *, outputs: bool) -> TaskView:
        beside: Any = None
        waits = "waits for room" if self._record.status is NodeTaskStatus.PENDING else ""
        return TaskView(self._record, beside, beside, waits)

    async def newest_task_event(self, _task_id: str) -> TaskEvent:
        return self._events[-1]

    async def task_events(self, _task_id: str, after: str, limit: int) -> Stretch[TaskEvent]:
        entries = tuple(self._events[int(after.partition("-")[2]) :][:limit])
        if not entries and self._later:
            self._happen(*self._later.pop(0))
        return Stretch(False, entries)

    async def reports(self) -> list[str]:
        """Watch the task to its end; return the reports, by their event or, without one, by status."""
        it: Any = self
        watch = WatchTask(it, it, lambda _user_id: it, self.streams)
        changes = [change async for change in watch(NAME, "ann", "", outputs=False)]
        return [each.event.kind if each.event else f"is {each.view.task.status}" for each in changes]

    def _happen(self, *kinds: TaskEventKind) -> None:
        for kind in kinds:
            self._events.append(TaskEvent(kind, at=1, event_id=f"1-{len(self._events) + 1}"))
            self._record = replace(self._record, status=STATUSES[kind])
        self.streams.notify(NAME)


async def test_changes_between_event_read_and_record_read_are_reported_once() -> None:
    queued, running, completed = TaskEventKind.QUEUED, TaskEventKind.RUNNING, TaskEventKind.COMPLETED
    assert await Watched([queued], [running, completed]).reports() == ["suspended", queued, running, completed]
    assert await Watched([queued, running, completed]).reports() == ["suspended", queued, running, completed]
