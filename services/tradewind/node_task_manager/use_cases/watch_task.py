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
    """A task as an event left it; without one, as it is. After a `gap` some events are missing before this."""

    seen: Seen
    event: TaskEvent | None = None
    gap: bool = False

    @property
    def last(self) -> bool:
        """Whether nothing follows."""
        return self.seen.task.status.terminal


class WatchTask:
    """Tells of a task what its events tell; `notices` returns the ones of a user."""

    def __init__(self, ad_hoc: AdHoc, look: Look, notices: Callable[[str], Notices], watch: StreamWatch) -> None:
        self._ad_hoc = ad_hoc
        self._look = look
        self._notices = notices
        self._watch = watch
        self._looks: SharedReads[Seen] = SharedReads()

    async def __call__(
        self, task_id: str, user_id: str, after: str, *, outputs: bool
    ) -> AsyncGenerator[TaskChange, None]:
        """Yield the task with each event after a position; without one as it is, then with each event to come.

        The last one is in a terminal status. Of a node task of a flow events are kept from the first watch on: what
        follows a position before that is a gap. Raises NotFound, and Exhausted when too many are watched of a cycle.
        """
        notices = self._notices(user_id)

        async def look() -> Seen:
            return await self._looks(
                (task_id, user_id, outputs), partial(self._read, task_id, user_id, outputs=outputs)
            )

        gap = not (TaskName.parse(task_id).run.ad_hoc or await self._keep_events(await look(), notices)) and bool(after)
        if gap:
            after = ""
        # What is read of the task is never older than the events that are told with it.
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
                # One that waits no more has an event that says so.
                news = seen.task.status.terminal or (seen.waits and seen.waits != before.waits)
                if news and (await notices.task_events(task_id, after, 1)).entries:
                    # This look has seen what happened after the events were read: they tell it, each in its turn.
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
        """Have events of a node task of a flow be kept; says whether they were before."""
        name, component = TaskName.parse(seen.task.task_id), seen.component
        outcome = await notices.watch_task(name.run, component.component_id, name.within_run)
        if outcome is WatchOutcome.UNKNOWN:
            raise NotFound("node task", seen.task.task_id)
        if outcome is WatchOutcome.FULL:
            message = f"{MOST_WATCHED} node tasks of this component are watched; watch others when some have ended"
            raise Exhausted("QUEUE_FULL", message, _AGAIN_S)
        if outcome is WatchOutcome.ENDED:
            return await notices.newest_task_event(seen.task.task_id) is not None
        return outcome is WatchOutcome.WATCHED


def _left(seen: Seen, event: TaskEvent | None, *, gap: bool = False) -> TaskChange:
    if event is None:
        return TaskChange(seen, gap=gap)
    waits = seen.waits if event.status is seen.task.status else ""
    return TaskChange(replace(seen, task=event.leaves(seen.task), waits=waits), event, gap)
