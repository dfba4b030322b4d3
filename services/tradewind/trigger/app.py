"""The trigger service put together: the only place that names concrete classes."""

import asyncio
from collections.abc import Callable, Sequence

import grpc
from redis.exceptions import RedisError

from tradewind.api.trigger.v1 import trigger_service_pb2_grpc as pb2_grpc
from tradewind.server.clock import ScriptTime
from tradewind.server.doctor import doctor_of
from tradewind.server.ending import end_tasks
from tradewind.server.errors import ErrorTable
from tradewind.server.redis.client import connect, require_reachable, require_safe_policy
from tradewind.server.redis.subscriber import Subscriber
from tradewind.trigger.loops import sweep_loop
from tradewind.trigger.rpc.handlers import TriggerHandlers
from tradewind.trigger.settings import TriggerSettings
from tradewind.trigger.stores.keys import Keys
from tradewind.trigger.stores.redis import RedisTriggerStore
from tradewind.trigger.stores.redis_queues import RedisQueueStore
from tradewind.trigger.stores.redis_wakes import RedisWakeChannel
from tradewind.trigger.use_cases.change_triggers import ChangeTriggers
from tradewind.trigger.use_cases.doctor import ExamineIndexes
from tradewind.trigger.use_cases.find_triggers import FindTriggers
from tradewind.trigger.use_cases.open_deliveries import OpenDeliveries
from tradewind.trigger.use_cases.publish_event import PublishEvent
from tradewind.trigger.use_cases.receivers import QueueReceivers
from tradewind.trigger.use_cases.remove_trigger import RemoveTrigger
from tradewind.trigger.use_cases.save_trigger import SaveTrigger
from tradewind.trigger.use_cases.sweep_indexes import SweepIndexes


class TriggerService:
    """The service, to be bound to a server."""

    names: Sequence[str] = ("tradewind.api.trigger.v1.TriggerService",)

    errors = ErrorTable()

    def __init__(self, settings: TriggerSettings) -> None:
        user = settings.store_user
        password = settings.store_password.get_secret_value() if settings.store_password else None
        keys, policy = Keys(settings.key_prefix), settings.policy()
        self._client = connect(settings.store_url, user=user, password=password)
        self._subscriber = Subscriber(settings.store_url, user=user, password=password)
        self._wakes = RedisWakeChannel(self._subscriber, keys)
        self._deaf: Callable[[], None] | None = None
        self._receivers = QueueReceivers()
        store_of = RedisTriggerStore(self._client, keys, ScriptTime(), policy).of_queue
        queues = RedisQueueStore(self._client, keys, ScriptTime(), policy)
        self._sweep = SweepIndexes(queues, round(settings.trigger_overdue_seconds * 1000))
        self._sweep_s = settings.trigger_sweep_seconds
        self._sweeping: asyncio.Task[None] | None = None
        self._doctor = doctor_of(ExamineIndexes(queues), settings)
        self._watching: asyncio.Task[None] | None = None
        self._handlers = TriggerHandlers(
            save=SaveTrigger(store_of, self._receivers),
            remove=RemoveTrigger(store_of),
            find=FindTriggers(store_of, queues),
            change=ChangeTriggers(queues, store_of, self._receivers),
            publish=PublishEvent(queues, self._receivers),
            deliveries=OpenDeliveries(store_of, self._receivers, policy.lease_ms),
            doctor=self._doctor,
            max_payload_bytes=settings.trigger_max_payload_bytes,
        )

    def bind(self, server: grpc.aio.Server) -> None:
        """Serve on this server."""
        pb2_grpc.add_TriggerServiceServicer_to_server(self._handlers, server)

    async def start(self) -> None:
        """Begin to hear of changes. Raises ConnectionError or UnsafeStore when the store will not do."""
        await require_reachable(self._client)
        await require_safe_policy(self._client)
        self._subscriber.start()
        self._deaf = await self._wakes.listen(self._receivers.hear, self._receivers.missed)
        self._sweeping = asyncio.create_task(sweep_loop(self._sweep, self._sweep_s))
        self._watching = asyncio.create_task(self._doctor.watch())

    async def drain(self) -> None:
        """End the streams; what they hold is given back, so that another replica delivers it at once."""
        self._handlers.drain()

    async def stop(self) -> None:
        """End; returns when what streams held has been given back."""
        await end_tasks(task for task in (self._sweeping, self._watching) if task is not None)
        await self._receivers.settle()
        if self._deaf is not None:
            self._deaf()
        await self._subscriber.stop()
        await self._client.aclose()

    async def not_ready(self) -> str | None:
        """Return why calls would fail now, None when they would not."""
        try:
            await self._client.ping()
        except (RedisError, OSError) as error:
            return f"the store does not answer: {error}"
        return None
