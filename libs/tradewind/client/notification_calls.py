"""What a client asks about notifications."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from tradewind.api.node_task_manager.v1 import notification_pb2 as pb
from tradewind.client.calls import new_request_id
from tradewind.client.connection import Connection
from tradewind.client.following import follow
from tradewind.client.messages import build
from tradewind.client.notifications import Notification, Severity, notification_from
from tradewind.client.wire import number_of

PAGE = 200


class NotificationCalls:
    """Notifications of the client's user."""

    _connection: Connection
    _user_id: str

    async def list_notifications(self) -> AsyncIterator[Notification]:
        """Yield the notifications that are kept, newest first."""
        request = build(pb.ListNotificationsRequest, user_id=self._user_id, page_size=PAGE)
        async for page in self._connection.pages(self._connection.node_task_manager.ListNotifications, request):
            for message in page.notifications:
                yield notification_from(message)

    async def count_unread_notifications(self) -> int:
        """Return how many notifications are unread."""
        request = build(pb.ListNotificationsRequest, user_id=self._user_id, page_size=1)
        answer = await self._connection.call(self._connection.node_task_manager.ListNotifications, request)
        return answer.unread

    async def mark_notifications_read(self, through: str = "") -> int:
        """Mark a notification (by its id) and all earlier ones as read; return how many are unread.

        Without an id, mark all of them.
        """
        request = build(pb.MarkNotificationsReadRequest, user_id=self._user_id, through_notification_id=through)
        answer = await self._connection.call(self._connection.node_task_manager.MarkNotificationsRead, request)
        return answer.unread

    async def watch_notifications(self, *, after: str = "") -> AsyncGenerator[Notification, None]:
        """Yield notifications as they arrive, without end; first those `after` a given id, "0-0" for all of them.

        Continues where it was after a lost connection. Raises Unavailable when the server stays away.
        """

        def resume(request: pb.WatchNotificationsRequest, response: pb.WatchNotificationsResponse) -> None:
            request.after_notification_id = response.resume_from

        responses = follow(
            self._connection,
            lambda: self._connection.node_task_manager.WatchNotifications,
            build(pb.WatchNotificationsRequest, user_id=self._user_id, after_notification_id=after),
            lambda response: response,
            lambda _: False,
            resume,
        )
        async with aclosing(responses):
            async for response in responses:
                gap = response.gap
                for message in response.notifications:
                    yield notification_from(message, gap=gap)
                    gap = False

    async def send_notification(
        self,
        title: str,
        message: str = "",
        *,
        user_id: str | None = None,
        severity: Severity | str = Severity.INFO,
        flow_id: str = "",
        cycle: int | None = None,
        key: str = "",
    ) -> bool:
        """Send a notification to a user, by default the client's own, optionally about a flow or a cycle.

        Returns False, without keeping it, if another was sent with the same `key` within 24 h. Raises InvalidInput.
        """
        draft = build(
            pb.NotificationDraft,
            user_id=self._user_id if user_id is None else user_id,
            severity=number_of(pb.Severity, severity),
            title=title,
            message=message,
            subject=build(pb.NotificationSubject, flow_id=flow_id, cycle=cycle),
            # Without a key, the server would accept the notification again when the call is repeated.
            key=key or new_request_id(),
        )
        answer = await self._connection.call(
            self._connection.node_task_manager.PublishNotifications,
            build(pb.PublishNotificationsRequest, notifications=[draft]),
        )
        return answer.kept[0] or not key
