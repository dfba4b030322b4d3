"""Notifications of users: sending, listing, following, marking as read."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from tradewind.node_task_manager.domain.notification import Fact, Notification
from tradewind.node_task_manager.ports.events import Notices
from tradewind.node_task_manager.ports.reading import STREAM_START, Stretch
from tradewind.node_task_manager.use_cases.node_task_records import ANSWER_BYTES
from tradewind.node_task_manager.use_cases.shard import Shard, by_shard, of_user
from tradewind.node_task_manager.use_cases.watch_streams import StreamWatch
from tradewind.server.paging import Page


class UserNotifications:
    """Notifications, over all shards."""

    def __init__(self, shards: Mapping[int, Shard], watch: StreamWatch) -> None:
        self._shards = shards
        self._watch = watch

    def of(self, user_id: str) -> Notices:
        """Return the store of a user's notifications."""
        return of_user(self._shards, user_id).notices

    async def publish(self, notifications: Sequence[tuple[str, str, Fact]]) -> list[bool]:
        """Send notifications (user, key, fact); say of each whether it was new, going by its key."""
        kept = [False] * len(notifications)
        placed = ((of_user(self._shards, user_id).number, at) for at, (user_id, _, _) in enumerate(notifications))
        for number, mine in by_shard(placed).items():
            answers = await self._shards[number].notices.publish([notifications[place] for place in mine])
            for place, answer in zip(mine, answers, strict=True):
                kept[place] = answer
        return kept

    async def page(self, user_id: str, before: str, limit: int) -> tuple[list[Notification], str, int]:
        """Return a page, newest first, where the next begins ("" at the end), and how many of all are unread."""
        found, unread = await self.of(user_id).list_notifications(user_id, before, limit + 1)
        page: Page[Notification] = Page(limit, ANSWER_BYTES)
        more = not all(page.add(each, 500 + len(each.message.encode())) for each in found)
        return page.items, page.items[-1].notification_id if more else "", unread

    async def mark_read(self, user_id: str, through: str) -> int:
        """Mark all up to a position ("" for all) as read, and return how many are unread."""
        notices = self.of(user_id)
        await notices.mark_read(user_id, through)
        _, unread = await notices.list_notifications(user_id, "", 1)
        return unread

    async def watch(self, user_id: str, after: str) -> AsyncGenerator[tuple[str, Stretch[Notification]], None]:
        """Yield, without end, notifications after a position ("" for new ones only), with the position of the last.

        The first stretch comes at once and is empty.
        """
        notices = self.of(user_id)
        after = after or await notices.newest_notification(user_id)
        yield after, Stretch(False, ())
        stretches = self._watch.follow(
            f"n:{user_id}",
            after,
            lambda at, limit: notices.notifications(user_id, at, limit),
            lambda each: each.notification_id,
        )
        async with aclosing(stretches):
            async for stretch in stretches:
                if stretch.entries:
                    yield stretch.entries[-1].notification_id, stretch
                elif stretch.gap:
                    yield STREAM_START, stretch
