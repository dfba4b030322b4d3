"""Events for the scheduler, and notifications of users."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import StopMark
from tradewind.node_task_manager.domain.notification import Fact, Notification
from tradewind.node_task_manager.domain.task_event import TaskEvent, WatchOutcome
from tradewind.node_task_manager.ports.reading import Stretch


class ComponentEvent(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="finished"):
    """Says that a component finished; `event_id` orders the events of a partition.

    `outputs` pairs handles with the values that the component's only sink, `sink`, has emitted, if they are 1 KiB at
    most.
    """

    event_id: str
    partition: int
    at: int
    run: str
    run_id: str
    component: str
    nodes: int
    completed: int
    sinks: int
    sink: str = ""
    outputs: tuple[tuple[str, str], ...] = ()
    failed: int = 0
    terminated: int = 0
    skipped: int = 0
    stop: StopMark | None = None


class SubFlowEvent(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="sub_flow"):
    """Says that a node task waits for a cycle to begin, or that nobody waits for the run named `child` any more."""

    event_id: str
    partition: int
    at: int
    run: str
    run_id: str
    task_id: str
    user_id: str
    child: str = ""


class OpenEvent(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="open"):
    """Asks whether a component that is open should be: the store may have lost what the scheduler did with it."""

    event_id: str
    partition: int
    at: int
    run: str
    run_id: str
    component: str
    user_id: str
    begun_at: int


Event: TypeAlias = ComponentEvent | SubFlowEvent | OpenEvent
"""Events for the scheduler."""

FIRST = "0"
"""The position before all events of a partition."""


def position(event_id: str) -> tuple[int, int]:
    """Parse a position in a stream, `<ms>-<number>` or `<ms>`, so that it can be ordered."""
    ms, _, number = event_id.partition("-")
    return int(ms), int(number or 0)


class NewEvent(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An event that a change brought about, and the id of the previous event of its partition."""

    after: str
    event: Event


class EventLog(Protocol):
    """Events of one shard for the scheduler, kept until they are acknowledged."""

    async def subscribe(self, partition: int, epoch: int) -> bool:
        """Raise the partition's epoch; False when a higher one is known."""
        ...

    async def read(self, after: dict[int, str], limit: int) -> list[Event]:
        """Return events of each partition after its position ("0" for the first kept), in order."""
        ...

    async def acknowledge(self, through: dict[int, str]) -> None:
        """Forget each partition's events up to and including a position."""
        ...


class Notices(Protocol):
    """Events of node tasks, and notifications of users; most are written by the changes of node tasks themselves.

    The newest events of an ad-hoc task are kept as long as its record, and so are those of a node task of a flow once
    somebody has watched it. The newest notifications of a user are kept for 7 d.
    """

    async def watch_task(self, run: RunName, component_id: str, within_run: str) -> WatchOutcome:
        """Keep events of a node task of a flow from now on, for at most 100 unfinished node tasks of a component.

        `within_run` is its id within its run. No events are kept if it has ended, or if its component is not there.
        """
        ...

    async def task_events(self, task_id: str, after: str, limit: int) -> Stretch[TaskEvent]:
        """Return up to `limit` events of a node task after a position, in order."""
        ...

    async def newest_task_event(self, task_id: str) -> TaskEvent | None:
        """Return the newest event of a task, None when none is kept."""
        ...

    async def publish(self, notifications: Sequence[tuple[str, str, Fact]]) -> list[bool]:
        """Keep notifications (user, key, fact); False if the same key, unless "", came for the user within a day."""
        ...

    async def notifications(self, user_id: str, after: str, limit: int) -> Stretch[Notification]:
        """Return up to `limit` notifications of a user after a position, in order."""
        ...

    async def newest_notification(self, user_id: str) -> str:
        """Return the position of a user's newest notification, STREAM_START when there is none."""
        ...

    async def list_notifications(self, user_id: str, before: str, limit: int) -> tuple[list[Notification], int]:
        """Return up to `limit` notifications before a position ("" for the newest), newest first, and how many of all
        that are kept are unread."""
        ...

    async def mark_read(self, user_id: str, through: str) -> None:
        """Mark all notifications up to a position as read, "" for all; read ones stay read."""
        ...
