"""Puts the trigger service together: the only place that names concrete classes."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import grpc

from tradewind.api.trigger.v1 import trigger_service_pb2_grpc as pb2_grpc
from tradewind.server.clock import ScriptTime
from tradewind.server.doctor import Examiners, doctor_of, no_examiners
from tradewind.server.errors import ErrorTable
from tradewind.server.partitions import PARTITIONS
from tradewind.server.redis.data_version import DataVersion
from tradewind.server.redis.link import RedisLink
from tradewind.server.side_tasks import SideTasks
from tradewind.server.store_link import NoLink, StoreLink
from tradewind.server.telemetry import open_tracing
from tradewind.trigger.loops import sweep_loop
from tradewind.trigger.ports.stores import Stores
from tradewind.trigger.rpc.handlers import TriggerHandlers
from tradewind.trigger.settings import TriggerSettings
from tradewind.trigger.stores.keys import Keys
from tradewind.trigger.stores.redis import RedisTriggerStore
from tradewind.trigger.stores.redis_doctor import RedisTriggerExaminers
from tradewind.trigger.stores.redis_queues import RedisQueueStore
from tradewind.trigger.stores.redis_wakes import RedisWakeChannel
from tradewind.trigger.use_cases.change_triggers import ChangeTriggers
from tradewind.trigger.use_cases.find_triggers import FindTriggers
from tradewind.trigger.use_cases.open_deliveries import OpenDeliveries
from tradewind.trigger.use_cases.publish_event import PublishEvent
from tradewind.trigger.use_cases.receivers import QueueReceivers
from tradewind.trigger.use_cases.save_trigger import SaveTrigger
from tradewind.trigger.use_cases.sweep_indexes import SweepIndexes
from tradewind.trigger.use_cases.trace_firings import TraceFirings

NAME = "tradewind-trigger"


class TriggerService:
    """The trigger service; bind it to a server."""

    names: Sequence[str] = ("tradewind.api.trigger.v1.TriggerService",)

    errors = ErrorTable()

    def __init__(self, settings: TriggerSettings, *, stores: Stores | None = None) -> None:
        """Use `stores`, if given, instead of the Redis stores that the settings name."""
        policy = settings.policy()
        self.tracing = open_tracing(NAME, settings.otlp_endpoint, settings.trace_sampling)
        self._link: StoreLink = NoLink()
        self._receivers = QueueReceivers()
        examiners: Examiners = no_examiners
        if stores is None:
            keys = Keys(settings.key_prefix)
            self._link = link = RedisLink(settings, DataVersion(keys.data_version(), {"partitions": PARTITIONS}))
            triggers = RedisTriggerStore(link.client, keys, ScriptTime(), policy)
            queues = RedisQueueStore(link.client, keys, ScriptTime(), policy)
            stores = Stores(triggers.of_queue, queues, RedisWakeChannel(link.subscriber, keys))
            examiners = RedisTriggerExaminers(queues).examiners
            link.client.losses.listen(self._receivers.store_lost)
        self._wakes = stores.wakes
        self._stop_listening: Callable[[], None] | None = None
        self._sweep = SweepIndexes(stores.queues, round(settings.trigger_overdue_seconds * 1000))
        self._sweep_s = settings.trigger_sweep_seconds
        self._doctor = doctor_of(examiners, settings)
        self._tasks = SideTasks()
        self._handlers = TriggerHandlers(
            save=SaveTrigger(stores.of_queue, self._receivers),
            find=FindTriggers(stores.of_queue, stores.queues),
            change=ChangeTriggers(stores.of_queue, stores.queues, self._receivers),
            publish=PublishEvent(stores.queues, self._receivers),
            deliveries=OpenDeliveries(
                stores.of_queue,
                self._receivers,
                policy.lease_ms,
                TraceFirings(self.tracing),
                settings.trigger_poll_seconds,
            ),
            doctor=self._doctor,
            max_payload_bytes=settings.trigger_max_payload_bytes,
            clock=self._link.clock,
        )

    def bind(self, server: grpc.aio.Server) -> None:
        """Add the service to a server."""
        pb2_grpc.add_TriggerServiceServicer_to_server(self._handlers, server)

    async def start(self) -> None:
        """Begin to work. Raises OSError or UnsafeStore when the store cannot be used."""
        await self._link.open()
        self._stop_listening = await self._wakes.listen(self._receivers.notify, self._store_back)
        self._tasks.begin(sweep_loop(self._sweep, self._sweep_s))
        self._tasks.begin(self._doctor.watch())

    def _store_back(self) -> None:
        self._receivers.poll_all()
        self._receivers.store_lost()

    async def drain(self) -> None:
        """End the streams; their claims are given back, so that another replica delivers the triggers at once."""
        self._handlers.drain()

    async def stop(self) -> None:
        """Stop working; returns when the claims of all streams have been given back."""
        async with AsyncExitStack() as last_to_first:
            last_to_first.push_async_callback(self._link.close)
            if self._stop_listening is not None:
                last_to_first.callback(self._stop_listening)
            last_to_first.push_async_callback(self._receivers.settle)
            last_to_first.push_async_callback(self._tasks.end)

    async def not_ready(self) -> str | None:
        """Return why calls would fail at present, None when they would not."""
        return await self._link.not_ready()
