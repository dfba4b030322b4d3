"""The part of NodeTaskManagerService for notifications and task events: parse, call the use case, answer."""

from contextlib import aclosing
from dataclasses import dataclass

from tradewind.api.node_task_manager.v1 import batch_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as pb2_grpc
from tradewind.api.node_task_manager.v1 import notification_pb2 as pb2
from tradewind.node_task_manager.rpc import ad_hoc_checks, notification_mapping
from tradewind.node_task_manager.use_cases.notifications import UserNotifications
from tradewind.node_task_manager.use_cases.watch_task import WatchTask
from tradewind.server.all_faults import every
from tradewind.server.identifiers import require_identifiers
from tradewind.server.interception import Context
from tradewind.server.paging import page_of, page_token
from tradewind.server.streams import OpenStreams


@dataclass(eq=False, kw_only=True)
class NotificationHandlers(pb2_grpc.NodeTaskManagerServiceServicer):
    """Notifications of users, and events of node tasks."""

    streams: OpenStreams
    watch_task: WatchTask
    notifications: UserNotifications

    async def WatchTask(self, request: batch_pb2.WatchTaskRequest, context: Context) -> None:  # type: ignore[override]
        every(
            lambda: ad_hoc_checks.watched_task(request.task_id, request.user_id),
            lambda: notification_mapping.check_position("after_event_id", request.after_event_id),
        )
        changes = self.watch_task(
            request.task_id, request.user_id, request.after_event_id, outputs=request.include_outputs
        )
        with self.streams.opened():
            async with aclosing(changes):
                async for change in changes:
                    await context.write(notification_mapping.task_change(change))

    async def ListNotifications(
        self, request: pb2.ListNotificationsRequest, context: Context
    ) -> pb2.ListNotificationsResponse:
        position, limit = page_of(request, str, user_id=request.user_id)
        before = position or ""
        notification_mapping.check_position("page_token", before)
        found, following, unread = await self.notifications.page(request.user_id, before, limit)
        return pb2.ListNotificationsResponse(
            notifications=notification_mapping.notifications(request.user_id, found),
            next_page_token=page_token(following or None),
            unread=unread,
        )

    async def WatchNotifications(  # type: ignore[override]
        self, request: pb2.WatchNotificationsRequest, context: Context
    ) -> None:
        every(
            lambda: require_identifiers(user_id=request.user_id),
            lambda: notification_mapping.check_position("after_notification_id", request.after_notification_id),
        )
        with self.streams.opened():
            async with aclosing(self.notifications.watch(request.user_id, request.after_notification_id)) as news:
                async for resume_from, stretch in news:
                    await context.write(
                        pb2.WatchNotificationsResponse(
                            notifications=notification_mapping.notifications(request.user_id, stretch.entries),
                            resume_from=resume_from,
                            gap=stretch.gap,
                        )
                    )

    async def MarkNotificationsRead(
        self, request: pb2.MarkNotificationsReadRequest, context: Context
    ) -> pb2.MarkNotificationsReadResponse:
        every(
            lambda: require_identifiers(user_id=request.user_id),
            lambda: notification_mapping.check_position("through_notification_id", request.through_notification_id),
        )
        unread = await self.notifications.mark_read(request.user_id, request.through_notification_id)
        return pb2.MarkNotificationsReadResponse(unread=unread)

    async def PublishNotifications(
        self, request: pb2.PublishNotificationsRequest, context: Context
    ) -> pb2.PublishNotificationsResponse:
        kept = await self.notifications.publish(notification_mapping.facts(request))
        return pb2.PublishNotificationsResponse(kept=kept)
