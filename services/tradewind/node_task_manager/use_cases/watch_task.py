"""Following a node task by its events."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from tradewind.node_task_manager.domain.names import TaskName
from tradewind.node_task_manager.domain.task_event import MOST_WATCHED, TaskEvent, TaskEventKind, WatchOutcome
from tradewind.node_task_manager.ports.events import Notices
from tradewind.node_task_manager.use_cases.ad_hoc import AdHoc
from tradewind.node_task_manager.use_cases.look import Look, Seen
from tradewind.node_task_manager.use_cases.shared_reads import SharedReads
from tradewind.node_task_manager.use_cases.watch_streams import StreamWatch
from tradewind.server.faults import Exhausted, NotFound

FIRST = "0-0"
"""The position before the first event."""
_AGAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A task as an event left it, or without an event, as it is. With a `gap`, some events before this are missing."""

    seen: Seen
    event: TaskEvent | None = None
    gap: bool = False

    @property
    def last(self) -> bool:
        """Whether nothing follows."""
        return self.seen.task.status.terminal


class WatchTask:
    """Follows a task by its events; `notices` returns the Notices of a user."""

    def __init__(self, ad_hoc: AdHoc, look: Look, notices: Callable[[str], Notices], watch: StreamWatch) -> None:
        self._ad_hoc = ad_hoc
        self._look = look
        self._notices = notices
        self._watch = watch
        self._looks: SharedReads[Seen] = SharedReads()

    async def __call__(
        self, task_id: str, user_id: str, after: str, *, outputs: bool
    ) -> AsyncGenerator[TaskChange, None]:
        """Yield the task with each event after a position; without a position, as it is, then with each event to come.

        The last change is in a terminal status. Events of a node task of a flow are kept from the first watch on, so
        there is a gap after a position before that. Raises NotFound, and Exhausted when too many node tasks of the
        component are watched.
        """
        notices = self._notices(user_id)

        async def look() -> Seen:
            return await self._looks(
                (task_id, user_id, outputs), partial(self._read, task_id, user_id, outputs=outputs)
            )

        gap = not (TaskName.parse(task_id).run.ad_hoc or await self._keep_events(await look(), notices)) and bool(after)
        if gap:
            after = ""
        # The events are read first: the task must never be older than the events that it is yielded with.
        newest = None if after else await notices.newest_task_event(task_id)
        seen = await look()
        if not after:
            change = _left(seen, newest, gap=gap)
            yield change
            if change.last:
                return
            after, gap = newest.event_id if newest else FIRST, False
        stretches = self._watch.follow(
            task_id, after, lambda at, limit: notices.task_events(task_id, at, limit), lambda event: event.event_id
        )
        async with aclosing(stretches):
            async for stretch in stretches:
                if stretch.gap:
                    after, gap = FIRST, True
                if any(event.kind is not TaskEventKind.PROGRESS for event in stretch.entries):
                    seen = await look()
                for event in stretch.entries:
                    change = _left(seen, event, gap=gap)
                    yield change
                    if change.last:
                        return
                    after, gap = event.event_id, False
                if stretch.entries:
                    continue
                before, seen = seen, await look()
                # If the task no longer waits, an event says so.
                news = seen.task.status.terminal or (seen.waits and seen.waits != before.waits)
                if news and (await notices.task_events(task_id, after, 1)).entries:
                    # The task has changed since the events were read: the next events say how, one by one.
                    continue
                if gap or news:
                    yield TaskChange(seen, gap=gap)
                    if seen.task.status.terminal:
                        return
                    gap = False

    async def _read(self, task_id: str, user_id: str, *, outputs: bool) -> Seen:
        if TaskName.parse(task_id).run.ad_hoc:
            return await self._ad_hoc.task(task_id, user_id, outputs=outputs)
        seen = await self._look.node_task(task_id, user_id, outputs=outputs)
        if seen.component.user_id != user_id:
            raise NotFound("node task", task_id)
        return seen

    async def _keep_events(self, seen: Seen, notices: Notices) -> bool:
        """Keep events of a node task of a flow from now on; return whether they were kept before."""
        name, component = TaskName.parse(seen.task.task_id), seen.component
        outcome = await notices.watch_task(name.run, component.component_id, name.within_run)
        if outcome is WatchOutcome.UNKNOWN:
            raise NotFound("node task", seen.task.task_id)
        if outcome is WatchOutcome.FULL:
            message = f"{MOST_WATCHED} node tasks of this component are being watched, which is the limit"
            raise Exhausted("QUEUE_FULL", f"{message}; try again when some have ended", _AGAIN_S)
        if outcome is WatchOutcome.ENDED:
            return await notices.newest_task_event(seen.task.task_id) is not None
        return outcome is WatchOutcome.WATCHED


def _left(seen: Seen, event: TaskEvent | None, *, gap: bool = False) -> TaskChange:
    if event is None:
        return TaskChange(seen, gap=gap)
    waits = seen.waits if event.status is seen.task.status else ""
    return TaskChange(replace(seen, task=event.leaves(seen.task), waits=waits), event, gap)
