"""The node task manager put together: the only place that names concrete classes."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import grpc

from tradewind.api.keda.v1.external_scaler_pb2_grpc import add_ExternalScalerServicer_to_server
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as pb2_grpc
from tradewind.grpc_engine.bearer import with_token
from tradewind.node_task_manager.loops import Loops
from tradewind.node_task_manager.peers.node_types import LiveNodeTypes
from tradewind.node_task_manager.peers.registry import RegisteredWorkers
from tradewind.node_task_manager.ports.events import NewEvent
from tradewind.node_task_manager.rpc.called_worker import CalledWorkerChannel, OpenWorkerChannel
from tradewind.node_task_manager.rpc.external_scaler import NAME as EXTERNAL_SCALER
from tradewind.node_task_manager.rpc.external_scaler import ExternalScalerHandlers
from tradewind.node_task_manager.rpc.handlers import NodeTaskManagerHandlers
from tradewind.node_task_manager.rpc.named_runs import runs_in
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.node_task_manager.stores.all_stores import Stores
from tradewind.node_task_manager.stores.redis_stores import RedisStores
from tradewind.node_task_manager.use_cases.ad_hoc import AdHoc
from tradewind.node_task_manager.use_cases.cache_statistics import CacheCounts
from tradewind.node_task_manager.use_cases.caches import ResultCaches
from tradewind.node_task_manager.use_cases.called import QUIET_FACTOR, CalledWorkers
from tradewind.node_task_manager.use_cases.clean import Cleaner
from tradewind.node_task_manager.use_cases.connect import Connections
from tradewind.node_task_manager.use_cases.control_runs import ControlRuns
from tradewind.node_task_manager.use_cases.dead_letters import DeadLetters
from tradewind.node_task_manager.use_cases.demand import Demand
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.doctor import ExamineShards
from tradewind.node_task_manager.use_cases.events import EventFeed
from tradewind.node_task_manager.use_cases.explain import ExplainNodeTask
from tradewind.node_task_manager.use_cases.measure import MeasureQueues
from tradewind.node_task_manager.use_cases.node_task_records import NodeTaskRecords
from tradewind.node_task_manager.use_cases.notes import Notes
from tradewind.node_task_manager.use_cases.notifications import UserNotifications
from tradewind.node_task_manager.use_cases.plans import PlanCache
from tradewind.node_task_manager.use_cases.queue_statistics import CountQueues
from tradewind.node_task_manager.use_cases.record_connections import RecordConnections
from tradewind.node_task_manager.use_cases.replica_messages import ReplicaListener, ReplicaPublisher
from tradewind.node_task_manager.use_cases.signal_node import SignalNode
from tradewind.node_task_manager.use_cases.sub_flows import SubFlows
from tradewind.node_task_manager.use_cases.submit import SubmitRuns
from tradewind.node_task_manager.use_cases.submit_ad_hoc import SubmitAdHoc
from tradewind.node_task_manager.use_cases.system_config import FollowConfig
from tradewind.node_task_manager.use_cases.trace_nodes import TraceNodes
from tradewind.node_task_manager.use_cases.unary_work import UnaryWork
from tradewind.node_task_manager.use_cases.waits import ExplainPending
from tradewind.node_task_manager.use_cases.watch_runs import RunWatch
from tradewind.node_task_manager.use_cases.watch_streams import StreamWatch
from tradewind.node_task_manager.use_cases.watch_task import WatchTask
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.channels import OpenChannel, channels_of, open_channel
from tradewind.server.doctor import doctor_of
from tradewind.server.errors import ErrorAnswers, ErrorTable
from tradewind.server.faults import NotFound, Unreadable
from tradewind.server.identifiers import new_run_id
from tradewind.server.reading import UnreadableLog
from tradewind.server.settings import text_of
from tradewind.server.streams import OpenStreams
from tradewind.server.telemetry import open_tracing

NAME = "tradewind-node-task-manager"

_CACHE_TIMEOUT_S, _STORE_TIMEOUT_S = 2.0, 10.0


class NodeTaskManager:
    """The node task manager; bind it to a server."""

    names: Sequence[str] = ("tradewind.api.node_task_manager.v1.NodeTaskManagerService", EXTERNAL_SCALER)

    errors = ErrorTable()

    def __init__(
        self,
        settings: NodeTaskManagerSettings,
        *,
        stores: Stores | None = None,
        open_channel: OpenChannel | None = None,
        open_worker_channel: OpenWorkerChannel = open_channel,
    ) -> None:
        """Use `stores`, if given, instead of the Redis stores that the settings name."""
        open_channel = open_channel or channels_of(settings)
        limits = settings.limits()
        self._stores = stores = stores or RedisStores(settings, limits)
        shards = stores.shards

        plans, pool = PlanCache(), WorkerPool()
        # Without the store itself nothing goes on anyway.
        timeout_s = _CACHE_TIMEOUT_S if settings.cache_url else _STORE_TIMEOUT_S
        self._publisher = publisher = ReplicaPublisher(stores.publish)
        caches = self._caches = ResultCaches(
            stores.caches,
            CacheCounts(stores.caches, stores.cache_statistics, lambda: self._config.config),
            lambda: self._config.config,
            pool,
            lambda shard, task_ids: self._dispatchers[shard].hasten(task_ids),
            publisher.publish_result,
            limits.lease_ms,
            timeout_s,
        )
        self.tracing = open_tracing(NAME, settings.otlp_endpoint, settings.trace_sampling)
        traces = TraceNodes.for_tracing(self.tracing)

        self._feed = EventFeed(shards, publisher.publish_owner, settings.node_task_manager_poll_seconds)
        self._dispatchers = {
            at: Dispatcher(shard, pool, plans, self._publish_events, publisher.publish_workers, caches, traces)
            for at, shard in shards.items()
        }
        self._config = FollowConfig(stores.config, self._dispatchers, publisher.publish_config)
        self._watch, self._stream_watch = RunWatch(), StreamWatch()
        self._replica_listener = ReplicaListener(
            self._dispatchers, pool, self._feed, self._config, caches, self._notify_watchers, self._on_removed
        )

        lease_s = limits.lease_ms / 1000
        replica, every_s = new_run_id(), settings.node_task_manager_clean_seconds
        pace = settings.node_task_manager_clean_keys_per_second
        self._cleaners = [
            Cleaner(shard.tasks, replica, every_s, pace, partial(self._publish_events, at))
            for at, shard in shards.items()
        ]
        doctors = [(doctor, self._dispatchers[at]) for at, doctor in stores.doctors.items()]
        examiners = ExamineShards(
            doctors, stores.cache_doctors.values(), lambda: self._config.config.all_caches, replica
        )
        doctor = self._doctor = doctor_of(examiners, settings)
        self._unreadable = UnreadableLog(__name__)
        self._loops = Loops(
            self._dispatchers,
            pool,
            lease_s,
            self._config.load,
            caches,
            self._cleaners,
            stores.clock,
            settings.node_task_manager_poll_seconds,
        )

        known = settings.registry_address not in ("", "none")
        token = text_of(settings.service_token)
        self._channel = with_token(open_channel(settings.registry_address), token) if known else None
        registered = RegisteredWorkers(self._channel)
        grace_s = settings.node_task_manager_stream_grace_seconds
        self._connections = Connections(self._dispatchers, pool, registered, self._loops.stalls, grace_s)
        self._called = CalledWorkers(
            self._dispatchers,
            pool,
            registered,
            stores.replicas,
            partial(
                CalledWorkerChannel,
                limits=limits,
                clock=stores.clock,
                tls=settings.tls_files(),
                open_channel=open_worker_channel,
            ),
            publisher.publish_workers,
            replica,
            grace_s,
        )
        called_s = settings.node_task_manager_called_seconds
        self._loops.repeat(self._called.refresh, called_s, QUIET_FACTOR * called_s)
        self._loops.run_alongside(doctor.watch)
        self._record_connections = RecordConnections(stores.connected, pool, replica, stores.clock)
        self._loops.run_alongside(self._record_connections.run)
        if settings.metrics_port:
            self._loops.repeat(MeasureQueues(shards, pool, stores.clock), settings.metrics_seconds)

        self._notes = Notes(shards)
        self._streams = OpenStreams()
        self._records = records = NodeTaskRecords(shards, plans, ExplainPending(self._config.share, stores.connected))
        node_types = LiveNodeTypes(pool, self._channel)
        ad_hoc = AdHoc(self._dispatchers, records, node_types, limits)
        notifications = UserNotifications(shards, self._stream_watch)
        submit_ad_hoc = SubmitAdHoc(self._dispatchers, plans, node_types, limits)
        count_queues = CountQueues(shards)
        self._scaler = ExternalScalerHandlers(Demand(count_queues), self._streams)

        self._handlers = NodeTaskManagerHandlers(
            submit=SubmitRuns(self._dispatchers, plans),
            control=ControlRuns(self._dispatchers, records, limits, stores.clock),
            signal_node=SignalNode(self._dispatchers, records),
            sub_flows=SubFlows(self._dispatchers, records),
            records=records,
            count_queues=count_queues,
            config=self._config,
            unary=UnaryWork(self._dispatchers, plans, caches, self._called.ended, self._called.gave_back, traces),
            caches=caches,
            connections=self._connections,
            notes=self._notes,
            feed=self._feed,
            streams=self._streams,
            errors=ErrorAnswers(self.errors),
            submit_ad_hoc=submit_ad_hoc,
            ad_hoc=ad_hoc,
            watch=self._watch,
            dead_letters=DeadLetters(records, submit_ad_hoc),
            watch_task=WatchTask(ad_hoc, records, notifications.of, self._stream_watch),
            notifications=notifications,
            doctor=doctor,
            connected=stores.connected,
            record_connections=self._record_connections,
            explain=ExplainNodeTask(
                records,
                self._config.share,
                lambda: self._config.config,
                stores.connected,
                stores.write_refusal,
                stores.clock,
                limits,
            ),
            traces=traces,
            shards=shards.keys(),
            limits=limits,
            clock=stores.clock,
        )

    async def owners(self, request: Any) -> Collection[str]:
        """Return the owners of the runs that a request names; for the gate.

        Raises InvalidInput for too many, NotFound for ad-hoc tasks and batches of another user.
        """
        named = runs_in(request)
        found = await asyncio.gather(*(self._records.components(run, request.user_id) for run in named))
        owners = [{component.user_id for component in components} for components in found]
        for (run, task_id), owned_by in zip(named.items(), owners, strict=True):
            if run.ad_hoc and owned_by - {request.user_id}:
                raise NotFound("node task", task_id)
        return set().union(*owners)

    def bind(self, server: grpc.aio.Server) -> None:
        """Add the service to a server."""
        pb2_grpc.add_NodeTaskManagerServiceServicer_to_server(self._handlers, server)
        add_ExternalScalerServicer_to_server(self._scaler, server)

    async def start(self) -> None:
        """Begin to work. Raises OSError or UnsafeStore when the store cannot be used."""
        await self._stores.open()
        for shard in self._dispatchers:
            await self._stores.listen(shard, partial(self._replica_listener, shard), self._on_reconnect)
        await self._config.load()
        for dispatcher in self._dispatchers.values():
            dispatcher.start()
        self._loops.start()

    async def drain(self) -> None:
        """End long streams: workers and schedulers go to another replica, which calls those that are called."""
        self._streams.drain()
        await self._called.leave()

    async def stop(self) -> None:
        """Store what was reported and stop working; workers keep what they hold until its lease lapses."""
        async with AsyncExitStack() as last_to_first:
            last_to_first.push_async_callback(self._stores.close)
            if self._channel is not None:
                last_to_first.push_async_callback(self._channel.close)
            last_to_first.push_async_callback(self._publisher.stop)
            last_to_first.push_async_callback(self._notes.close)
            last_to_first.push_async_callback(self._caches.stop)
            last_to_first.push_async_callback(self._stop_dispatchers)
            last_to_first.push_async_callback(self._record_connections.leave)
            last_to_first.push_async_callback(self._called.stop)
            last_to_first.push_async_callback(self._connections.stop)
            last_to_first.push_async_callback(self._replica_listener.stop)
            last_to_first.push_async_callback(self._loops.stop)

    async def _stop_dispatchers(self) -> None:
        """Stop all at once: each waits for its store, which may be away."""
        await asyncio.gather(*(dispatcher.stop() for dispatcher in self._dispatchers.values()))

    async def not_ready(self) -> str | None:
        """Return why calls would fail at present, None when they would not."""
        return await self._stores.not_ready()

    def _publish_events(self, shard: int, events: Sequence[NewEvent]) -> None:
        self._publisher.publish_events(shard, self._feed.push(shard, events))

    def _notify_watchers(self, name: str, over: bool) -> None:
        self._watch.notify(name, over=over)
        self._stream_watch.notify(name)

    def _on_removed(self, key: str) -> None:
        """Name an index that was of another type, and let the doctor put back what records tell of it."""
        self._unreadable.note(Unreadable(key, "it was of another type, so it has been removed"))
        self._doctor.look_soon()

    def _on_reconnect(self) -> None:
        """Catch up: while the store was away, messages and replies may have been lost, and its own last second."""
        for dispatcher in self._dispatchers.values():
            dispatcher.request_claim()
            dispatcher.recovered()
        for cleaner in self._cleaners:
            cleaner.store_was_away()
        self._feed.recheck()
        self._watch.recheck()
        self._stream_watch.recheck()
