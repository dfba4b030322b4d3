"""Events of node tasks and notifications of users in memory."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tradewind.node_task_manager.domain.component import Component
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus, TaskError
from tradewind.node_task_manager.domain.notification import Fact, Notification, NotificationKind
from tradewind.node_task_manager.domain.task_event import TaskEvent, TaskEventKind
from tradewind.node_task_manager.ports.events import position
from tradewind.node_task_manager.ports.reading import STREAM_START, Stretch
from tradewind.node_task_manager.stores.memory.replacing import replace

BRIEF = 500
QUIET_MS = 60_000
_AHEAD = (TaskEventKind.RETRYING, TaskEventKind.WAITING, TaskEventKind.SUSPENDED)
_LAST_CHARACTER = re.compile(rb"[\xc0-\xff][\x80-\xbf]*\Z")

Item = TypeVar("Item")


@dataclass
class Stream(Generic[Item]):
    """A capped stream of entries by position; a position is a time and a number within it."""

    cap: int
    entries: list[tuple[tuple[int, int], Item]] = field(default_factory=list)
    last: tuple[int, int] = (0, 0)
    trimmed: bool = False

    def add(self, now: int, item: Item) -> None:
        """Append an entry; the oldest goes when there are too many."""
        self.last = (now, self.last[1] + 1 if self.last[0] == now else 0)
        self.entries.append((self.last, item))
        self.trimmed = self.trimmed or len(self.entries) > self.cap
        del self.entries[: -self.cap]

    def after(self, event_id: str, limit: int, oldest: int = 0) -> tuple[bool, list[tuple[str, Item]]]:
        """Return whether some entries after a position are gone, and those that are left."""
        at = position(event_id)
        gap = self.trimmed if at == (0, 0) else all(held != at for held, _ in self.entries)
        return gap, [(named(held), item) for held, item in self.entries if (gap or held > at) and held[0] >= oldest][
            :limit
        ]


def named(at: tuple[int, int]) -> str:
    """Return a position as text."""
    return f"{at[0]}-{at[1]}"


def brief(text: str) -> str:
    """Cut a text that may be long."""
    whole = text.encode()
    return text if len(whole) <= BRIEF else _LAST_CHARACTER.sub(b"", whole[:BRIEF]).decode()


class MemoryNotices:
    """Notices; `clock` returns epoch ms."""

    def __init__(self, limits: Limits, clock: Callable[[], int]) -> None:
        self._limits = limits
        self._clock = clock
        self._task_events: dict[str, Stream[TaskEvent]] = {}
        self._notifications: dict[str, Stream[Fact]] = {}
        self._read: dict[str, tuple[int, int]] = {}
        self._quiet: dict[tuple[str, str], int] = {}
        self._watched: dict[str, str] = {}
        """Node tasks of flows whose events are kept, with the ids of their components."""
        self.on_news: Callable[[str], None] = lambda news: None
        """Called, with the scripts' messages, whenever there is something new to read."""

    async def task_events(self, task_id: str, after: str, limit: int) -> Stretch[TaskEvent]:
        gap, found = self._task_events.get(task_id, Stream(0)).after(after, limit)
        return Stretch(gap, tuple(replace(event, event_id=at) for at, event in found))

    async def newest_task_event(self, task_id: str) -> TaskEvent | None:
        stream = self._task_events.get(task_id)
        return replace(stream.entries[-1][1], event_id=named(stream.last)) if stream else None

    async def publish(self, notifications: Sequence[tuple[str, str, Fact]]) -> list[bool]:
        kept = []
        for user, key, fact in notifications:
            kept.append(not key or self._once(user, f"key:{key}", self._limits.retention_ms))
            if kept[-1]:
                self._notify(user, fact)
        return kept

    async def notifications(self, user_id: str, after: str, limit: int) -> Stretch[Notification]:
        gap, found = self._notifications.get(user_id, Stream(0)).after(after, limit, self._oldest())
        return Stretch(gap, tuple(Notification(at, fact) for at, fact in found))

    async def newest_notification(self, user_id: str) -> str:
        listed, _ = await self.list_notifications(user_id, "", 1)
        return listed[0].notification_id if listed else STREAM_START

    async def list_notifications(self, user_id: str, before: str, limit: int) -> tuple[list[Notification], int]:
        stream, mark = self._notifications.get(user_id, Stream[Fact](0)), self._read.get(user_id, (0, 0))
        kept = [(at, fact) for at, fact in stream.entries if at[0] >= self._oldest()]
        listed = [
            Notification(named(at), fact, read=at <= mark)
            for at, fact in reversed(kept)
            if not before or at < position(before)
        ]
        return listed[:limit], sum(at > mark for at, _ in kept)

    async def mark_read(self, user_id: str, through: str) -> None:
        newest = self._notifications.get(user_id, Stream[Fact](0)).last
        # Those that come later are not read.
        wanted = min(position(through), newest) if through else newest
        self._read[user_id] = max(self._read.get(user_id, (0, 0)), wanted)

    def _oldest(self) -> int:
        return self._clock() - self._limits.notification_retention_ms

    def _notify(self, user: str, fact: Fact) -> None:
        stream = self._notifications.setdefault(user, Stream(self._limits.notifications))
        stream.add(self._clock(), replace(fact, at=self._clock()))
        self.on_news(f"n:{user}")

    def _once(self, user: str, name: str, ms: int) -> bool:
        """Whether to notify a user of `name`: only once within `ms`."""
        if self._quiet.get((user, name), 0) > self._clock():
            return False
        self._quiet[user, name] = self._clock() + ms
        return True

    def _add_event(self, task: NodeTask, kind: TaskEventKind, error: TaskError | None = None, reason: str = "") -> None:
        """Keep an event of an ad-hoc task, or of a watched node task of a flow."""
        if not task.task_id.startswith("task:") and task.task_id not in self._watched:
            return
        if error:
            error = replace(error, message=brief(error.message), traceback="")
        is_progress = kind is TaskEventKind.PROGRESS
        self._task_events.setdefault(task.task_id, Stream(self._limits.task_events)).add(
            self._clock(),
            TaskEvent(
                kind=kind,
                at=self._clock(),
                attempt=task.attempt,
                worker_id=task.worker_id,
                progress=task.progress if is_progress else 0,
                message=task.message if is_progress else "",
                step=task.step if is_progress else "",
                reason=reason,
                retry_at=task.retry_at if kind in _AHEAD else 0,
                stop=task.stop if kind is TaskEventKind.STOPPING else None,
                error=error,
            ),
        )
        self.on_news(f"r:{task.task_id}")

    def _notify_end(self, component: Component, node_type: str, task: NodeTask | None, *, given_up: bool) -> None:
        """Notify the user of the end of an ad-hoc task or a batch."""
        subject, user = str(component.run), component.user_id
        if task is None:
            fact = Fact(
                NotificationKind.BATCH_FINISHED,
                subject,
                node_type=node_type,
                total=component.nodes,
                completed=component.completed,
                failed=component.failed,
                cancelled=component.terminated + component.skipped,
                stopped=component.stop is not None,
            )
        elif task.status is NodeTaskStatus.COMPLETED:
            fact = Fact(NotificationKind.TASK_COMPLETED, subject, node_type=node_type)
        elif task.status is NodeTaskStatus.FAILED and task.error is not None:
            code, message = task.error.code, brief(task.error.typed_message)
            fact = Fact(
                NotificationKind.TASK_FAILED,
                subject,
                node_type=node_type,
                code=code,
                message=message,
                given_up=given_up,
            )
        else:
            fact = Fact(NotificationKind.TASK_CANCELLED, subject, node_type=node_type, message=brief(task.reason))
        self._notify(user, fact)

    def _notify_component(self, component: Component) -> None:
        """Notify the user, at most once a minute for each flow, of a component that ended badly, unless somebody
        stopped it."""
        stop, run = component.stop, component.run
        notable = stop.by == "system" if stop else component.failed > 0
        if notable and self._once(component.user_id, f"failed:{run.flow_id}", QUIET_MS):
            fact = Fact(
                NotificationKind.CYCLE_FAILED,
                str(run),
                total=component.nodes,
                failed=component.failed,
                message=brief(stop.reason) if stop else "",
            )
            self._notify(component.user_id, fact)

    def _notify_given_up(self, task_id: str, component: Component, node_type: str, error: TaskError) -> None:
        """Notify the user of a dead letter: of a batch's first one, and of a flow's at most once a minute."""
        run = component.run
        if run.ad_hoc == task_id:
            return
        name, ms = (run.ad_hoc, self._limits.retention_ms) if run.ad_hoc else (run.flow_id, QUIET_MS)
        if self._once(component.user_id, f"given_up:{name}", ms):
            kind = NotificationKind.DEAD_LETTER
            self._notify(
                component.user_id,
                Fact(kind, task_id, node_type=node_type, code=error.code, message=brief(error.typed_message)),
            )
