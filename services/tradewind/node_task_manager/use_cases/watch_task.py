"""Following an ad-hoc task by its events."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from tradewind.node_task_manager.domain.task_event import TaskEvent, TaskEventKind
from tradewind.node_task_manager.ports.events import Notices
from tradewind.node_task_manager.use_cases.ad_hoc import AdHoc
from tradewind.node_task_manager.use_cases.look import Seen
from tradewind.node_task_manager.use_cases.shared_reads import SharedReads
from tradewind.node_task_manager.use_cases.watch_streams import StreamWatch

FIRST = "0-0"
"""The position before the first event."""


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

    def __init__(self, ad_hoc: AdHoc, notices: Callable[[str], Notices], watch: StreamWatch) -> None:
        self._ad_hoc = ad_hoc
        self._notices = notices
        self._watch = watch
        self._looks: SharedReads[Seen] = SharedReads()

    async def __call__(
        self, task_id: str, user_id: str, after: str, *, outputs: bool
    ) -> AsyncGenerator[TaskChange, None]:
        """Yield the task with each event after a position; without one as it is, then with each event to come.

        The last one is in a terminal status. Raises NotFound.
        """
        notices = self._notices(user_id)

        async def look() -> Seen:
            read = partial(self._ad_hoc.task, task_id, user_id, outputs=outputs)
            return await self._looks((task_id, user_id, outputs), read)

        # What is read of the task is never older than the events that are told with it.
        newest = None if after else await notices.newest_task_event(task_id)
        seen = await look()
        if not after:
            change = _left(seen, newest)
            yield change
            if change.last:
                return
            after = newest.event_id if newest else FIRST
        stretches = self._watch.follow(
            task_id, after, lambda at, limit: notices.task_events(task_id, at, limit), lambda event: event.event_id
        )
        async with aclosing(stretches):
            async for stretch in stretches:
                events, gap = stretch.entries, stretch.gap
                if any(event.kind is not TaskEventKind.PROGRESS for event in events):
                    seen = await look()
                for event in events:
                    change = _left(seen, event, gap=gap)
                    yield change
                    if change.last:
                        return
                    after, gap = event.event_id, False
                if events:
                    continue
                before, seen = seen, await look()
                if (
                    seen.task.status.terminal
                    and (await notices.task_events(task_id, FIRST if gap else after, 1)).entries
                ):
                    continue
                # One that waits no more has an event that says so.
                if gap or seen.task.status.terminal or (seen.waits and seen.waits != before.waits):
                    yield TaskChange(seen, gap=gap)
                    if seen.task.status.terminal:
                        return


def _left(seen: Seen, event: TaskEvent | None, *, gap: bool = False) -> TaskChange:
    if event is None:
        return TaskChange(seen, gap=gap)
    waits = seen.waits if event.status is seen.task.status else ""
    return TaskChange(replace(seen, task=event.leaves(seen.task), waits=waits), event, gap)
