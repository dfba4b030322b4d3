"""The scheduler put together: the only place that names concrete classes."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from typing import Any

import grpc

from tradewind.api.scheduler.v1 import scheduler_service_pb2_grpc as pb2_grpc
from tradewind.grpc_engine.bearer import with_token
from tradewind.scheduler.loops.bulk_jobs import bulk_jobs_loop
from tradewind.scheduler.loops.due import due_loop
from tradewind.scheduler.loops.events import event_loop
from tradewind.scheduler.loops.open_runs import open_runs_loop
from tradewind.scheduler.loops.outbox import outbox_loop
from tradewind.scheduler.loops.ownership import OwnershipLoop
from tradewind.scheduler.loops.publishing import PublishEndsLoop
from tradewind.scheduler.loops.queued import queued_loop
from tradewind.scheduler.loops.return_ends import return_ends_loop
from tradewind.scheduler.loops.tidying import TidyLoop
from tradewind.scheduler.peers.node_task_manager import NodeTaskManagerPeer
from tradewind.scheduler.peers.registry import RegistryPeer
from tradewind.scheduler.peers.sub_flows import SubFlowNodesPeer
from tradewind.scheduler.peers.trigger import TriggerPeer
from tradewind.scheduler.ports.peers import PeerRefused
from tradewind.scheduler.ports.stores import Stores
from tradewind.scheduler.ports.waking import Work
from tradewind.scheduler.rpc.handlers import SchedulerHandlers
from tradewind.scheduler.rpc.named_flows import flow_ids_in
from tradewind.scheduler.settings import SchedulerSettings
from tradewind.scheduler.stores.keys import Keys
from tradewind.scheduler.stores.redis import RedisStores
from tradewind.scheduler.use_cases.await_ends import AwaitEnds
from tradewind.scheduler.use_cases.backfill_flows import BackfillFlows
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.begin_backfilled import BeginBackfilled
from tradewind.scheduler.use_cases.begin_cycles import BeginCycles
from tradewind.scheduler.use_cases.begin_due import BeginDue
from tradewind.scheduler.use_cases.begin_queued import BeginQueued
from tradewind.scheduler.use_cases.begun_numbers import BegunNumbers
from tradewind.scheduler.use_cases.change_flow import ChangeFlow
from tradewind.scheduler.use_cases.change_hub import ChangeHub
from tradewind.scheduler.use_cases.definitions import Definitions
from tradewind.scheduler.use_cases.describe_cycle import DescribeCycle
from tradewind.scheduler.use_cases.doctor import CheckPeers, ExaminePartitions
from tradewind.scheduler.use_cases.end_waiters import EndWaiters
from tradewind.scheduler.use_cases.execute_jobs import ExecuteJobs
from tradewind.scheduler.use_cases.explain_flow import ExplainFlow
from tradewind.scheduler.use_cases.explain_node import ExplainNode
from tradewind.scheduler.use_cases.fold_events import FoldEvents
from tradewind.scheduler.use_cases.hand_over import HandOver
from tradewind.scheduler.use_cases.learn_definitions import LearnDefinitions
from tradewind.scheduler.use_cases.manage_bulk_jobs import ManageBulkJobs
from tradewind.scheduler.use_cases.manage_memory import ManageMemory
from tradewind.scheduler.use_cases.open_states import OpenStates
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.scheduler.use_cases.plan_flow import PlanFlow
from tradewind.scheduler.use_cases.publish_ends import PublishEnds
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.scheduler.use_cases.read_logs import ReadLogs
from tradewind.scheduler.use_cases.read_revisions import ReadRevisions
from tradewind.scheduler.use_cases.read_schedules import ReadSchedules
from tradewind.scheduler.use_cases.register_flow import RegisterFlow
from tradewind.scheduler.use_cases.rerun_cycle import RerunCycle
from tradewind.scheduler.use_cases.restore_triggers import RestoreTriggers
from tradewind.scheduler.use_cases.return_ends import ReturnEnds
from tradewind.scheduler.use_cases.revise_flow import ReviseFlow
from tradewind.scheduler.use_cases.run_cycles import RunCycles
from tradewind.scheduler.use_cases.settle_outbox import SettleOutbox
from tradewind.scheduler.use_cases.sink_outputs import SinkOutputs
from tradewind.scheduler.use_cases.stop_cycle import StopCycle
from tradewind.scheduler.use_cases.stop_ended_runs import StopEndedRuns
from tradewind.scheduler.use_cases.store_definition import StoreDefinition
from tradewind.scheduler.use_cases.sub_flows import SubFlows
from tradewind.scheduler.use_cases.supervise_runs import SuperviseRuns
from tradewind.scheduler.use_cases.told_triggers import ToldTriggers
from tradewind.scheduler.use_cases.trace_runs import TraceRuns
from tradewind.scheduler.use_cases.unused_inputs import UnusedInputs
from tradewind.scheduler.use_cases.wake_owners import WakeOwners
from tradewind.scheduler.use_cases.watch_flows import WatchFlows
from tradewind.server.channels import OpenChannel, channels_of
from tradewind.server.clock import ScriptTime
from tradewind.server.doctor import doctor_of
from tradewind.server.errors import ErrorAnswers, ErrorRule, ErrorTable
from tradewind.server.identifiers import new_run_id
from tradewind.server.partitions import PARTITIONS
from tradewind.server.redis.client import REDIS_ERRORS
from tradewind.server.redis.data_version import DataVersion
from tradewind.server.redis.link import RedisLink
from tradewind.server.settings import text_of
from tradewind.server.side_tasks import SideTasks
from tradewind.server.store_link import NoLink, StoreLink
from tradewind.server.streams import OpenStreams
from tradewind.server.telemetry import open_tracing

NAME = "tradewind-scheduler"


class Scheduler:
    """The scheduler; bind it to a server."""

    names: Sequence[str] = ("tradewind.api.scheduler.v1.SchedulerService",)

    errors = ErrorTable({PeerRefused: ErrorRule(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")})

    def __init__(
        self, settings: SchedulerSettings, *, stores: Stores | None = None, open_channel: OpenChannel | None = None
    ) -> None:
        """Use `stores`, if given, instead of the Redis stores that the settings name."""
        open_channel = open_channel or channels_of(settings)
        replica = f"scheduler-{new_run_id()}"
        self.tracing = open_tracing(NAME, settings.otlp_endpoint, settings.trace_sampling)
        self._link: StoreLink = NoLink()
        self._open_states = open_states = OpenStates()
        self._numbers = numbers = BegunNumbers()
        waiters = EndWaiters()
        if stores is None:
            stores = self._redis_stores(settings, replica)

        self._channels = [
            with_token(open_channel(address, traced=self.tracing.recording), text_of(settings.service_token))
            for address in (settings.node_task_manager_address, settings.trigger_address, settings.registry_address)
        ]
        to_node_tasks, to_triggers, to_registry = self._channels
        self._node_tasks = node_tasks = NodeTaskManagerPeer(to_node_tasks)
        triggers = TriggerPeer(to_triggers, replica, round(settings.scheduler_lead_seconds * 1000))
        node_types = RegistryPeer(to_registry)
        sub_flow_nodes = SubFlowNodesPeer(to_node_tasks)

        clock, poll_s = self._link.clock, settings.scheduler_poll_seconds
        self._publish_ends = publish_ends = PublishEnds(stores.ends, stores.states, stores.flows, triggers)
        self._background = Background()
        self._ownership = OwnPartitions(stores.partitions, stores.wakes)
        self._wakes = stores.wakes
        self._wake = wake = WakeOwners(stores.wakes, self._ownership, self._background, poll_s)

        definitions = Definitions(stores.flows)
        traces = TraceRuns(self.tracing)
        check_in_ms = int(settings.scheduler_check_in_seconds * 1000)
        begin = BeginCycles(stores.cycles, definitions, open_states, numbers, traces, wake, check_in_ms)
        fold = FoldEvents(stores.states, open_states, waiters, wake, traces)
        hand_over = HandOver(node_tasks, stores.states, begin, fold, open_states, wake, clock)
        outputs = SinkOutputs(node_tasks, waiters.is_awaited)
        self._hub = ChangeHub(stores.changes, stores.cycles, stores.states)
        self._await_ends = AwaitEnds(waiters, self._hub, stores.states, self._ownership.owns)
        self._ownership.on_change(self._await_ends.partitions_changed)
        forget = (definitions.forget, waiters.flow_removed)
        told = ToldTriggers()
        settle = SettleOutbox(
            stores.flows, stores.outbox, triggers, node_tasks, forget, wake, publish_ends.on_listener, told, clock
        )
        self._restore_triggers = restore = RestoreTriggers(told, stores.flows, stores.outbox, triggers, wake)

        self._read = read = ReadFlows(stores.flows, stores.cycles, stores.states)
        self._change = change = ChangeFlow(
            read, stores.flows, stores.states, node_tasks, settle, self._background, wake, clock
        )
        logs = ReadLogs(read, stores.cycles, stores.states, stores.logs, node_tasks)
        revisions = ReadRevisions(read, stores.flows, stores.revisions)
        store = StoreDefinition(stores.flows, definitions, change)
        register = RegisterFlow(node_types, node_tasks, stores.flows, store, clock)
        self._watch = WatchFlows(stores.flows, stores.cycles, read, self._hub)
        run = RunCycles(begin, hand_over, self._await_ends, stores.states, definitions)
        self._streams = OpenStreams()
        learn = LearnDefinitions(definitions, self._background, wake)
        begin_backfilled = BeginBackfilled(begin, stores.backfills, learn)
        waiting = (BeginQueued(begin, stores.firings, learn), begin_backfilled)
        backfills = BackfillFlows(read, stores.backfills, begin_backfilled, hand_over, self._background, clock)

        check_peers = CheckPeers(triggers, node_tasks, sub_flow_nodes, stores, wake, clock)
        self._doctor = doctor_of(ExaminePartitions(stores.doctor, check_peers, self._ownership), settings)

        rerun = RerunCycle(
            read, stores.cycles, stores.states, node_tasks, definitions, begin, hand_over, self._await_ends
        )
        stop_cycle = StopCycle(read, definitions, stores.states, node_tasks, self._background, wake, clock)
        return_ends = ReturnEnds(stores.returns, stores.states, definitions, outputs, sub_flow_nodes, node_tasks)
        sub_flows = SubFlows(sub_flow_nodes, stores.flows, stores.states, run, stop_cycle, return_ends)
        supervise = SuperviseRuns(
            stores.open_runs,
            stores.states,
            node_tasks,
            definitions,
            hand_over,
            fold,
            open_states,
            sub_flows,
            clock,
            int(settings.scheduler_reconcile_seconds * 1000),
        )

        self._handlers = SchedulerHandlers(
            register=register,
            plan=PlanFlow(register, stores.flows, node_types, node_tasks, clock),
            revise=ReviseFlow(read, revisions, register, store, clock),
            revisions=revisions,
            read=read,
            schedules=ReadSchedules(read, stores.firings, clock),
            change=change,
            run=run,
            await_ends=self._await_ends,
            definitions=definitions,
            outputs=outputs,
            unused_inputs=UnusedInputs(node_types),
            describe=DescribeCycle(read, logs, node_tasks),
            logs=logs,
            watch=self._watch,
            backfills=backfills,
            doctor=self._doctor,
            explain_flow=ExplainFlow(
                read, stores.firings, stores.open_runs, stores.backfills, node_tasks, self._link.write_refusal, clock
            ),
            explain_node=ExplainNode(read, definitions, node_tasks, node_types, self._link.write_refusal),
            memory=ManageMemory(read, stores.states, stores.memories, open_states),
            streams=self._streams,
            errors=ErrorAnswers(self.errors),
            rerun=rerun,
            stop_cycle=stop_cycle,
            jobs=ManageBulkJobs(stores.jobs, wake, clock),
        )

        self._loops = (
            bulk_jobs_loop(
                stores.jobs,
                ExecuteJobs(stores.jobs, stores.flows, stores.cycles, stores.states, rerun, stop_cycle, clock),
                wake,
                poll_s,
            ),
            OwnershipLoop(
                self._ownership,
                wake.alarms[Work.SHARES],
                settings.scheduler_lease_seconds,
                single_replica=settings.scheduler_single_replica,
            ),
            event_loop(
                node_tasks,
                fold,
                outputs,
                self._ownership,
                self._background,
                sub_flows,
                StopEndedRuns(stores.states, node_tasks, clock),
            ),
            return_ends_loop(return_ends, wake, poll_s),
            due_loop(
                triggers,
                BeginDue(begin),
                hand_over,
                self._ownership,
                self._background,
                publish_ends.on_listener,
                self._triggers_suspected,
            ),
            restore,
            open_runs_loop(stores.open_runs, supervise, wake, clock, poll_s),
            queued_loop(waiting, hand_over, self._background, wake, poll_s),
            PublishEndsLoop(
                publish_ends, self._ownership, wake.alarms[Work.ENDS], settings.scheduler_listeners_seconds
            ),
            TidyLoop(stores.cycles, self._ownership, settings.scheduler_tidy_seconds),
            outbox_loop(stores.outbox, settle, wake, 3 * poll_s),
        )

        self._tasks = SideTasks()
        self._stop_listening: Callable[[], None] | None = None

    def store_lost(self) -> None:
        """Note that the store was away, and may have lost its latest writes."""
        self._open_states.clear()
        self._numbers.store_lost()
        self._doctor.look_soon()

    def _triggers_suspected(self) -> None:
        """Note that the trigger service may have lost what it was told last, whether by this process or by another."""
        self._restore_triggers.suspect()
        self._doctor.look_soon()

    def _redis_stores(self, settings: SchedulerSettings, replica: str) -> RedisStores:
        keys = Keys(settings.key_prefix)
        self._link = link = RedisLink(settings, DataVersion(keys.data_version(), {"partitions": PARTITIONS}))
        link.client.losses.listen(self.store_lost)
        return RedisStores(
            link.client,
            keys,
            ScriptTime(),
            link.subscriber,
            replica=replica,
            lease_ms=int(settings.scheduler_lease_seconds * 1000),
            publishes_ends=lambda: self.publishes_ends,
            settle_ms=int(settings.scheduler_settle_seconds * 1000),
            store_clock=link.clock,
        )

    async def owners(self, request: Any) -> Collection[str]:
        """Return the owners of the flows that a request names; for the gate."""
        return await self._read.owners(flow_ids_in(request))

    async def has_flows(self) -> bool:
        """Say whether any flow is on record."""
        return await self._read.any()

    @property
    def publishes_ends(self) -> bool:
        """Whether anybody listens to the ends of cycles, so that stores are to keep them until they are published."""
        return self._publish_ends.has_listeners

    def bind(self, server: grpc.aio.Server) -> None:
        """Add the service to a server."""
        pb2_grpc.add_SchedulerServiceServicer_to_server(self._handlers, server)

    async def start(self) -> None:
        """Begin to work. Raises OSError or UnsafeStore when the store cannot be used."""
        await self._link.open()
        self._stop_listening = await self._wakes.listen(self._wake.receive, self._wake.missed)
        for loop in self._loops:
            self._tasks.begin(loop.run())
        self._tasks.begin(self._doctor.watch())

    async def drain(self) -> None:
        """End streams, begin nothing more on schedule, and leave the partitions to others."""
        self._watch.drain()
        self._streams.drain()
        self._await_ends.drain()
        self._change.drain()
        await self._tasks.end()
        try:
            await self._ownership.release()
        except (*REDIS_ERRORS, OSError):
            # The leases lapse by themselves.
            return

    async def stop(self) -> None:
        """Stop working; running cycles stay on record, and go on when a scheduler is back."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._link.close)
            for channel in self._channels:
                stack.push_async_callback(channel.close)
            stack.push_async_callback(self._node_tasks.close)
            stack.push_async_callback(self._hub.stop)
            stack.push_async_callback(self._background.stop)
            stack.push_async_callback(self._await_ends.stop)
            stack.push_async_callback(self._tasks.end)
            if self._stop_listening is not None:
                stack.callback(self._stop_listening)

    async def not_ready(self) -> str | None:
        """Return why calls would fail at present, None when they would not."""
        return await self._link.not_ready()
