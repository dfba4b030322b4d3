"""A user who follows their notifications in a life, and now and then marks some as read.

In the end, unless the store of the node task managers loses writes:

1. The watcher has got what is listed: every notification once, in order.
2. There is one of the end of each ad-hoc task and of each batch, unless it was redriven; of what was sent under a key
   there is one, if the call was answered, and never two.
3. What was marked as read is read, with all before it, and nothing else is.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, suppress

from tests.system.lives.followers import place_of
from tradewind.client import Client, Notification, NotificationKind, TradewindError

_ENDS = (NotificationKind.TASK_COMPLETED, NotificationKind.TASK_FAILED, NotificationKind.TASK_CANCELLED)


class Notified:
    """The user; each method that takes a flow's id does one thing, for no flow."""

    def __init__(self, draw: random.Random, client: Client) -> None:
        self._draw = draw
        self._client = client
        self._numbers = itertools.count()
        self._seen: list[Notification] = []
        self._sent: set[str] = set()
        self._marked: tuple[int, ...] = (0, 0)
        self._perhaps_marked: tuple[int, ...] = (0, 0)

    async def send(self, _: str) -> None:
        """Send a notification twice, under one key."""
        key = f"note-{next(self._numbers)}"
        calls = [self._client.send_notification(key, severity="warning", key=key) for _ in range(2)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        if any(isinstance(answer, bool) for answer in answers):
            self._sent.add(key)

    async def mark(self, _: str) -> None:
        """Mark some notification, and all before it, as read."""
        if self._seen:
            through = self._draw.choice(self._seen).notification_id
            self._perhaps_marked = max(self._perhaps_marked, place_of(through))
            await self._client.mark_notifications_read(through)
            self._marked = max(self._marked, place_of(through))

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Follow the notifications."""
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def violations(self, redriven: Collection[str]) -> list[str]:
        """Return a sentence for everything that is not as it must be; what was `redriven` may end again."""
        listed = [each async for each in self._client.list_notifications()][::-1]
        got, kept = [each.notification_id for each in self._seen], [each.notification_id for each in listed]
        found = [] if got == kept else [f"the watcher of notifications got {got} of {kept}"]
        found += self._of_marks(listed, await self._client.count_unread_notifications())
        found += self._of_keys(listed)
        ends = Counter(each.node_task_id for each in listed if each.kind in _ENDS)
        tasks = [task.node_task_id async for task in self._client.list_tasks() if task.status.ended]
        found += _not_once("task", tasks, ends, redriven)
        ends = Counter(each.batch_id for each in listed if each.kind == NotificationKind.BATCH_FINISHED)
        batches = [batch.batch_id async for batch in self._client.list_batches() if batch.ended]
        return [*found, *_not_once("batch", batches, ends, redriven)]

    def _of_marks(self, listed: Sequence[Notification], unread: int) -> Iterator[str]:
        for each in listed:
            place = place_of(each.notification_id)
            if each.read != (place <= self._marked) and (not each.read or place > self._perhaps_marked):
                yield f"notification {each.notification_id} is {'' if each.read else 'not '}read"
        if unread != sum(not each.read for each in listed):
            yield f"{unread} notifications are said to be unread"

    def _of_keys(self, listed: Sequence[Notification]) -> Iterator[str]:
        times = Counter(each.title for each in listed if each.kind == NotificationKind.SYSTEM_NOTIFICATION)
        for key in self._sent | set(times):
            if times[key] != 1:
                yield f"{key} was sent, and is there {times[key]} times"

    async def _follow(self) -> None:
        while True:
            after = self._seen[-1].notification_id if self._seen else "0-0"
            # It ends when no server is there for long.
            with suppress(TradewindError):
                async for notification in self._client.watch_notifications(after=after):
                    self._seen.append(notification)
            await asyncio.sleep(1)


def _not_once(what: str, ids: Sequence[str], ends: Counter[str], redriven: Collection[str]) -> Iterator[str]:
    for id in ids:
        if ends[id] != 1 and (id not in redriven or not ends[id]):
            yield f"{what} {id} has ended, of which there are {ends[id]} notifications"


WEIGHTS = {"send": 2, "mark": 2}
"""How often each operation is chosen."""
