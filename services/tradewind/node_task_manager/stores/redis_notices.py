"""Events of node tasks and notifications of users in Redis: capped streams."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.notification import Fact, Notification
from tradewind.node_task_manager.domain.task_event import MAX_WATCHED, TaskEvent, WatchOutcome
from tradewind.node_task_manager.ports.events import position
from tradewind.node_task_manager.ports.reading import STREAM_START, Stretch
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.node_task_manager.stores.redis import RedisNodeTaskStore
from tradewind.server.redis.client import Client
from tradewind.server.redis.records import read_of
from tradewind.server.redis.script import Script


@dataclass(frozen=True, slots=True)
class _Listed:
    """Notifications with their positions, the position up to which all are read, and how many are unread."""

    entries: tuple[tuple[str, Fact], ...]
    mark: str
    unread: int


_READ_EVENTS = Script(__name__, "read_stream", Stretch[tuple[str, TaskEvent]])
_READ_FACTS = Script(__name__, "read_stream", Stretch[tuple[str, Fact]])
_LIST = Script(__name__, "list_notifications", _Listed)
_MARK = Script(__name__, "mark_notifications", str)
_WATCH = Script(__name__, "watch_task", WatchOutcome)
_PUBLISH = Script(__name__, "publish_notifications", list[bool])


class RedisNotices:
    """Notices; `tasks` runs the scripts that write them, and `clock` returns 0 for the store's own time."""

    def __init__(
        self, client: Client, keys: Keys, limits: Limits, clock: Callable[[], int], tasks: RedisNodeTaskStore
    ) -> None:
        self._client = client
        self._keys = keys
        self._clock = clock
        self._tasks = tasks
        self._keep_ms = limits.notification_retention_ms

    async def watch_task(self, run: RunName, component_id: str, within_run: str) -> WatchOutcome:
        more = {"run": str(run), "component": component_id, "within": within_run, "most": MAX_WATCHED}
        return await self._tasks.run_script(_WATCH, more)

    async def task_events(self, task_id: str, after: str, limit: int) -> Stretch[TaskEvent]:
        key = self._keys.task_events(task_id)
        with read_of(key):
            found = await _READ_EVENTS(self._client, [key], self._read_args(after, limit))
        return Stretch(found.gap, tuple(replace(event, event_id=at) for at, event in found.entries))

    async def newest_task_event(self, task_id: str) -> TaskEvent | None:
        key = self._keys.task_events(task_id)
        with read_of(key):
            found = await _READ_EVENTS(self._client, [key], self._read_args("", 1, newest=True))
        return replace(found.entries[0][1], event_id=found.entries[0][0]) if found.entries else None

    async def notifications(self, user_id: str, after: str, limit: int) -> Stretch[Notification]:
        found = await self._facts(user_id, self._read_args(after, limit, keep_ms=self._keep_ms))
        return Stretch(found.gap, tuple(Notification(at, fact) for at, fact in found.entries))

    async def newest_notification(self, user_id: str) -> str:
        found = await self._facts(user_id, self._read_args("", 1, newest=True, keep_ms=self._keep_ms))
        return found.entries[0][0] if found.entries else STREAM_START

    async def list_notifications(self, user_id: str, before: str, limit: int) -> tuple[list[Notification], int]:
        keys = [self._keys.notifications(user_id), self._keys.notifications_read(user_id)]
        args = {"now": self._clock(), "keep": self._keep_ms, "before": before, "limit": limit}
        with read_of(keys[0]):
            found = await _LIST(self._client, keys, args)
        mark = position(found.mark or STREAM_START)
        listed = [Notification(at, fact, read=position(at) <= mark) for at, fact in found.entries]
        return listed, found.unread

    async def mark_read(self, user_id: str, through: str) -> None:
        keys = [self._keys.notifications(user_id), self._keys.notifications_read(user_id)]
        with read_of(keys[0]):
            await _MARK(self._client, keys, {"now": self._clock(), "keep": self._keep_ms, "through": through})

    async def publish(self, notifications: Sequence[tuple[str, str, Fact]]) -> list[bool]:
        sent = [{"user_id": user, "key": key, "fact": _non_defaults(fact)} for user, key, fact in notifications]
        return await self._tasks.run_script(_PUBLISH, {"notifications": sent})

    async def _facts(self, user_id: str, args: dict[str, Any]) -> Stretch[tuple[str, Fact]]:
        key = self._keys.notifications(user_id)
        with read_of(key):
            return await _READ_FACTS(self._client, [key], args)

    def _read_args(self, at: str, limit: int, *, newest: bool = False, keep_ms: int = 0) -> dict[str, Any]:
        return {"now": self._clock(), "keep": keep_ms, "at": at, "limit": limit, "newest": newest}


def _non_defaults(fact: Fact) -> dict[str, Any]:
    """Return the fields of a fact that differ from their defaults."""
    fields: dict[str, Any] = msgspec.to_builtins(fact)
    return {name: value for name, value in fields.items() if value}
