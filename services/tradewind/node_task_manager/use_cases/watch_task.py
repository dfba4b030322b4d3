"""Following a node task by its events."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from tradewind.node_task_manager.domain.names import TaskName
from tradewind.node_task_manager.domain.task_event import MAX_WATCHED, TaskEvent, TaskEventKind, WatchOutcome
from tradewind.node_task_manager.ports.events import Notices
from tradewind.node_task_manager.ports.reading import STREAM_START
from tradewind.node_task_manager.use_cases.ad_hoc import AdHoc
from tradewind.node_task_manager.use_cases.node_task_records import NodeTaskRecords
from tradewind.node_task_manager.use_cases.shared_reads import SharedReads
from tradewind.node_task_manager.use_cases.task_views import TaskView
from tradewind.node_task_manager.use_cases.watch_streams import StreamWatch
from tradewind.server.faults import Exhausted, NotFound

_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A task as an event left it, or without an event, as it is. With a `gap`, some events before this are missing."""

    view: TaskView
    event: TaskEvent | None = None
    gap: bool = False

    @property
    def last(self) -> bool:
        """Whether nothing follows."""
        return self.view.task.status.terminal


class WatchTask:
    """Follows a task by its events; `notices` returns the Notices of a user."""

    def __init__(
        self, ad_hoc: AdHoc, records: NodeTaskRecords, notices: Callable[[str], Notices], watch: StreamWatch
    ) -> None:
        self._ad_hoc = ad_hoc
        self._records = records
        self._notices = notices
        self._watch = watch
        self._reads: SharedReads[TaskView] = SharedReads()

    async def __call__(
        self, task_id: str, user_id: str, after: str, *, outputs: bool
    ) -> AsyncGenerator[TaskChange, None]:
        """Yield the task with each event after a position; without a position, as it is, then with each event to come.

        The last change is in a terminal status. Events of a node task of a flow are kept from the first watch on, so
        there is a gap after a position before that. Raises NotFound, and Exhausted when too many node tasks of the
        component are watched.
        """
        notices = self._notices(user_id)

        async def read_view() -> TaskView:
            return await self._reads(
                (task_id, user_id, outputs), partial(self._read, task_id, user_id, outputs=outputs)
            )

        kept = TaskName.parse(task_id).run.ad_hoc or await self._start_keeping_events(await read_view(), notices)
        gap = bool(after) and not kept
        if gap:
            after = ""
        # The events are read first: the task must never be older than the events that it is yielded with.
        newest = None if after else await notices.newest_task_event(task_id)
        view = await read_view()
        if not after:
            change = _change_after(view, newest, gap=gap)
            yield change
            if change.last:
                return
            after = newest.event_id if newest else STREAM_START
        changes = self._follow(task_id, after, view, read_view, notices)
        async with aclosing(changes):
            async for change in changes:
                yield change
                if change.last:
                    return

    async def _follow(
        self, task_id: str, after: str, view: TaskView, read_view: Callable[[], Awaitable[TaskView]], notices: Notices
    ) -> AsyncGenerator[TaskChange, None]:
        """Yield a task with each event after a position, and as it is when it has changed without an event."""
        gap = False
        stretches = self._watch.follow(
            task_id, after, lambda at, limit: notices.task_events(task_id, at, limit), lambda event: event.event_id
        )
        async with aclosing(stretches):
            async for stretch in stretches:
                if stretch.gap:
                    after, gap = STREAM_START, True
                if any(event.kind is not TaskEventKind.PROGRESS for event in stretch.entries):
                    view = await read_view()
                for event in stretch.entries:
                    yield _change_after(view, event, gap=gap)
                    after, gap = event.event_id, False
                if stretch.entries:
                    continue
                before, view = view, await read_view()
                # If the task no longer waits, an event says so.
                has_changed = view.task.status.terminal or (view.wait_reason and view.wait_reason != before.wait_reason)
                if has_changed and (await notices.task_events(task_id, after, 1)).entries:
                    # The task has changed since the events were read: the next events say how, one by one.
                    continue
                if gap or has_changed:
                    yield TaskChange(view, gap=gap)
                    gap = False

    async def _read(self, task_id: str, user_id: str, *, outputs: bool) -> TaskView:
        if TaskName.parse(task_id).run.ad_hoc:
            return await self._ad_hoc.task(task_id, user_id, outputs=outputs)
        view = await self._records.node_task(task_id, user_id, outputs=outputs)
        if view.component.user_id != user_id:
            raise NotFound("node task", task_id)
        return view

    async def _start_keeping_events(self, view: TaskView, notices: Notices) -> bool:
        """Keep events of a node task of a flow from now on; return whether they were kept before."""
        name, component = TaskName.parse(view.task.task_id), view.component
        outcome = await notices.watch_task(name.run, component.component_id, name.within_run)
        if outcome is WatchOutcome.UNKNOWN:
            raise NotFound("node task", view.task.task_id)
        if outcome is WatchOutcome.FULL:
            message = f"{MAX_WATCHED} node tasks of this component are being watched, which is the limit"
            raise Exhausted("QUEUE_FULL", f"{message}; try again when some have ended", _RETRY_S)
        if outcome is WatchOutcome.ENDED:
            return await notices.newest_task_event(view.task.task_id) is not None
        return outcome is WatchOutcome.WATCHED


def _change_after(view: TaskView, event: TaskEvent | None, *, gap: bool) -> TaskChange:
    if event is None:
        return TaskChange(view, gap=gap)
    wait_reason = view.wait_reason if event.status is view.task.status else ""
    return TaskChange(replace(view, task=event.applied_to(view.task), wait_reason=wait_reason), event, gap)
