"""A fake of the node task manager that the scheduler calls: a real gRPC servicer that the test controls."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from tradewind.api.node_task_manager.v1 import (
    cache_pb2,
    component_pb2,
    config_pb2,
    explanation_pb2,
    node_task_pb2,
    notification_pb2,
    queue_pb2,
)
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as ntm_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as ntm_grpc
from tradewind.server.interception import Context
from tradewind.server.paging import Page
from tradewind.server.partitions import partition_of
from tradewind.server.reason_answers import reason_messages
from tradewind.server.reasons import Reason

RunKey = tuple[str, int, int]


@dataclass
class FakeRun:
    """A run as submitted."""

    submission: component_pb2.RunSubmission
    components: dict[str, component_pb2.Component] = field(default_factory=dict)

    @property
    def key(self) -> RunKey:
        return (self.submission.flow_id, self.submission.cycle, self.submission.run)


def counts_of(**counts: int) -> node_task_pb2.StatusCounts:
    return node_task_pb2.StatusCounts(**counts)


class FakeNodeTaskManager(ntm_grpc.NodeTaskManagerServiceServicer):
    """Keeps runs in memory."""

    def __init__(self) -> None:
        self.automatic = True
        """Whether every component completes as soon as it is submitted."""
        self.runs: dict[RunKey, FakeRun] = {}
        self.plans: dict[str, component_pb2.Plan] = {}
        self.requests: list[ntm_pb2.SubmitComponentsRequest] = []
        self.stops: list[ntm_pb2.StopComponentRequest] = []
        self.purged: list[str] = []
        self.notifications: list[notification_pb2.NotificationDraft] = []
        self.refused_notifications = 0
        """How many of the next calls that bring notifications are refused."""
        self.purge_steps = 1
        self.refused_purges = 0
        self.refusals: list[component_pb2.SubmitResult] = []
        """The answers to the next runs, which are refused."""
        self.nodes: dict[RunKey, list[node_task_pb2.NodeTask]] = {}
        self.outputs_sent = 0
        """Of how many node tasks outputs were sent."""
        self.logs: dict[tuple[str, int], list[node_task_pb2.NodeLog]] = {}
        self.caches = ["screening", "analysis"]
        self.config = config_pb2.SystemConfig()
        self.running: dict[str, int] = {}
        """How many node tasks of each user are running."""
        self.explained: dict[str, tuple[node_task_pb2.NodeTask, list[tuple[Any, ...]]]] = {}
        """The explanations of node tasks: codes, sentences, and facts if any; other node tasks are unknown."""
        self.connected: set[str] = set()
        """The ids of the connected workers."""
        self.down = False
        self.withholds_events = False
        """Whether events are kept but not delivered."""
        self._events: list[component_pb2.Event] = []
        self._acknowledged: dict[int, int] = {}
        self._changed = asyncio.Condition()
        self._number = 0

    @property
    def unacknowledged(self) -> list[component_pb2.Event]:
        """Events that the scheduler has not acknowledged."""
        return [e for e in self._events if int(e.event_id) > self._acknowledged.get(e.partition, 0)]

    async def GetConfig(self, request: config_pb2.GetConfigRequest, context: Any) -> config_pb2.GetConfigResponse:
        await self._check(context)
        config = config_pb2.SystemConfig(caches={name: cache_pb2.CacheSettings() for name in self.caches})
        config.MergeFrom(self.config)
        return config_pb2.GetConfigResponse(config=config)

    async def GetQueueStats(
        self, request: queue_pb2.GetQueueStatsRequest, context: Any
    ) -> queue_pb2.GetQueueStatsResponse:
        await self._check(context)
        return queue_pb2.GetQueueStatsResponse(running=self.running.get(request.user_id, 0))

    async def SubmitComponents(
        self, request: ntm_pb2.SubmitComponentsRequest, context: Context
    ) -> ntm_pb2.SubmitComponentsResponse:
        await self._check(context)
        return await self._submitted(request)

    async def StreamSubmissions(
        self, request_iterator: AsyncIterator[ntm_pb2.StreamSubmissionsRequest], context: Context
    ) -> AsyncIterator[ntm_pb2.StreamSubmissionsResponse]:
        async for message in request_iterator:
            await self._check(context)
            response = await self._submitted(message.request)
            yield ntm_pb2.StreamSubmissionsResponse(number=message.number, response=response)

    async def _submitted(self, request: ntm_pb2.SubmitComponentsRequest) -> ntm_pb2.SubmitComponentsResponse:
        self.requests.append(request)
        self.plans.update({plan.digest: plan for plan in request.plans})
        response = ntm_pb2.SubmitComponentsResponse(results=[self._submit(run) for run in request.runs])
        if self._events:
            await self._notify()
        return response

    def _submit(self, run: component_pb2.RunSubmission) -> component_pb2.SubmitResult:
        if self.refusals:
            return self.refusals.pop(0)
        known = self.runs.get((run.flow_id, run.cycle, run.run))
        if known is not None and known.submission.run_id == run.run_id:
            return component_pb2.SubmitResult(outcome=component_pb2.SUBMIT_OUTCOME_DUPLICATE)
        if known is not None:
            return component_pb2.SubmitResult(
                outcome=component_pb2.SUBMIT_OUTCOME_RUN_CONFLICT, existing_run_id=known.submission.run_id
            )
        unknown = {part.plan_digest for part in run.components} - set(self.plans)
        if unknown:
            return component_pb2.SubmitResult(
                outcome=component_pb2.SUBMIT_OUTCOME_PLAN_UNKNOWN, unknown_plans=sorted(unknown)
            )
        self.put(run)
        return component_pb2.SubmitResult(outcome=component_pb2.SUBMIT_OUTCOME_ACCEPTED)

    def put(self, run: component_pb2.RunSubmission) -> FakeRun:
        """Add a run as if it had been submitted."""
        fake = FakeRun(run)
        self.runs[fake.key] = fake
        for part in run.components:
            plan = self.plans.get(part.plan_digest)
            fake.components[part.component_id] = component_pb2.Component(
                flow_id=run.flow_id,
                cycle=run.cycle,
                run=run.run,
                run_id=run.run_id,
                component_id=part.component_id,
                status=component_pb2.COMPONENT_STATUS_RUNNING,
                node_count=len(plan.nodes) if plan else 1,
            )
        stopped = any(s.flow_id == run.flow_id and s.run_id == run.run_id for s in self.stops)
        for component_id, component in fake.components.items():
            if stopped:
                self._end(fake, component_id, counts_of(skipped=component.node_count), 0)
            elif self.automatic:
                self._end(fake, component_id, counts_of(completed=component.node_count), 1)
        return fake

    async def finish(
        self, key: RunKey, component_id: str = "0", sinks_completed: int = 1, **counts: int
    ) -> component_pb2.Event:
        """End a component, with all its nodes completed unless `counts` says otherwise, and tell the scheduler."""
        run = self.runs[key]
        nodes = run.components[component_id].node_count
        event = self._end(run, component_id, counts_of(**(counts or {"completed": nodes})), sinks_completed)
        await self._notify()
        return event

    def _end(
        self, run: FakeRun, component_id: str, counts: node_task_pb2.StatusCounts, sinks_completed: int
    ) -> component_pb2.Event:
        component = run.components[component_id]
        component.status = component_pb2.COMPONENT_STATUS_FINISHED
        component.counts.CopyFrom(counts)
        component.sinks_completed = sinks_completed
        self._number += 1
        event = component_pb2.Event(
            event_id=str(self._number),
            partition=partition_of(component.flow_id),
            component_finished=component_pb2.ComponentFinished(component=component),
        )
        self._events.append(event)
        return event

    async def repeat(self, event: component_pb2.Event) -> None:
        """Deliver an event again under a new id."""
        self._number += 1
        again = component_pb2.Event()
        again.CopyFrom(event)
        again.event_id = str(self._number)
        self._events.append(again)
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def StopComponent(
        self, request: ntm_pb2.StopComponentRequest, context: Context
    ) -> ntm_pb2.StopComponentResponse:
        await self._check(context)
        self.stops.append(request)
        run = self.runs.get((request.flow_id, request.cycle, request.run))
        if run is None or run.submission.run_id != request.run_id:
            return ntm_pb2.StopComponentResponse()
        for component_id, component in run.components.items():
            if component.status != component_pb2.COMPONENT_STATUS_FINISHED:
                nodes = component.node_count
                component.stop.by, component.stop.reason = request.by, request.reason
                self._end(run, component_id, counts_of(terminated=1, skipped=nodes - 1), 0)
        await self._notify()
        return ntm_pb2.StopComponentResponse()

    async def PublishNotifications(
        self, request: notification_pb2.PublishNotificationsRequest, context: Context
    ) -> notification_pb2.PublishNotificationsResponse:
        await self._check(context)
        if self.refused_notifications:
            self.refused_notifications -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "down")
        known = {each.key for each in self.notifications if each.key}
        new = [each for each in request.notifications if each.key not in known]
        self.notifications += new
        return notification_pb2.PublishNotificationsResponse(kept=[each in new for each in request.notifications])

    async def GetComponents(
        self, request: ntm_pb2.GetComponentsRequest, context: Context
    ) -> ntm_pb2.GetComponentsResponse:
        await self._check(context)
        response = ntm_pb2.GetComponentsResponse()
        for run in request.runs:
            known = self.runs.get((run.flow_id, run.cycle, run.run))
            components = known.components if known is not None else {}
            response.components.extend(components[each] for each in run.component_ids if each in components)
        return response

    async def PurgeFlow(self, request: ntm_pb2.PurgeFlowRequest, context: Context) -> ntm_pb2.PurgeFlowResponse:
        self.refused_purges += self.down
        await self._check(context)
        self.purged.append(request.flow_id)
        self.purge_steps -= 1
        if self.purge_steps > 0:
            return ntm_pb2.PurgeFlowResponse(removed=1)
        self.runs = {key: run for key, run in self.runs.items() if key[0] != request.flow_id}
        return ntm_pb2.PurgeFlowResponse(done=True)

    async def ListNodeTasks(
        self, request: ntm_pb2.ListNodeTasksRequest, context: Context
    ) -> ntm_pb2.ListNodeTasksResponse:
        await self._check(context)
        tasks = self.nodes.get((request.flow_id, request.cycle, request.run), [])
        if request.node_ids:
            tasks = [task for task in tasks if task.node_id in request.node_ids]
        if not (request.page_token or "0").isdecimal():
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "page_token: is not a page token of this list")
        first = int(request.page_token or 0)
        page = tasks[first : first + request.page_size]
        following = first + len(page)
        return ntm_pb2.ListNodeTasksResponse(
            node_tasks=page, next_page_token=str(following) if following < len(tasks) else ""
        )

    async def ExplainNodeTask(
        self, request: explanation_pb2.ExplainNodeTaskRequest, context: Context
    ) -> explanation_pb2.ExplainNodeTaskResponse:
        await self._check(context)
        if request.node_task_id not in self.explained:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such node task")
        node_task, reasons = self.explained[request.node_task_id]
        return explanation_pb2.ExplainNodeTaskResponse(
            node_task=node_task,
            reasons=reason_messages(Reason(*each) for each in reasons),
        )

    async def ListConnections(
        self, request: ntm_pb2.ListConnectionsRequest, context: Context
    ) -> ntm_pb2.ListConnectionsResponse:
        await self._check(context)
        found = [ntm_pb2.Connection(worker_id=each) for each in request.worker_ids if each in self.connected]
        return ntm_pb2.ListConnectionsResponse(connections=found)

    async def GetNodeOutputs(
        self, request: ntm_pb2.GetNodeOutputsRequest, context: Context
    ) -> ntm_pb2.GetNodeOutputsResponse:
        await self._check(context)
        known = {task.node_task_id: task for tasks in self.nodes.values() for task in tasks}
        page: Page[ntm_pb2.NodeTaskOutputs] = Page(len(request.node_tasks), 2 * 1024 * 1024)
        for each in request.node_tasks:
            outputs = known[each.node_task_id].outputs if each.node_task_id in known else ()
            found = ntm_pb2.NodeTaskOutputs(node_task_id=each.node_task_id, outputs=outputs)
            if not page.add(found, found.ByteSize()):
                break
        self.outputs_sent += len(page.items)
        return ntm_pb2.GetNodeOutputsResponse(node_tasks=page.items)

    async def ListNodeLogs(
        self, request: ntm_pb2.ListNodeLogsRequest, context: Context
    ) -> ntm_pb2.ListNodeLogsResponse:
        await self._check(context)
        lines = self.logs.get((request.flow_id, request.cycle), [])
        first = next((at + 1 for at, line in enumerate(lines) if line.log_id == request.after_log_id), 0)
        page: Page[node_task_pb2.NodeLog] = Page(request.page_size, 2 * 1024 * 1024)
        more = not all(page.add(line, line.ByteSize()) for line in lines[first:])
        return ntm_pb2.ListNodeLogsResponse(logs=page.items, more=more)

    async def ReceiveEvents(
        self, request_iterator: AsyncIterator[ntm_pb2.ReceiveEventsRequest], context: Context
    ) -> AsyncIterator[ntm_pb2.ReceiveEventsResponse]:
        sent: dict[int, int] = {}

        async def read() -> None:
            async for request in request_iterator:
                for wanted in request.subscribe:
                    sent[wanted.partition] = self._acknowledged.get(wanted.partition, 0)
                for partition in request.unsubscribe:
                    sent.pop(partition, None)
                for ack in request.acks:
                    self._acknowledged[ack.partition] = int(ack.event_id)
                await self._notify()

        reading = asyncio.ensure_future(read())
        try:
            while True:
                if self.down:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "down")
                fresh = [e for e in self._events if e.partition in sent and int(e.event_id) > sent[e.partition]]
                if fresh and not self.withholds_events:
                    sent.update({event.partition: int(event.event_id) for event in fresh})
                    yield ntm_pb2.ReceiveEventsResponse(events=fresh)
                    self._events = self.unacknowledged
                async with self._changed:
                    await self._changed.wait()
        finally:
            reading.cancel()

    async def go_down(self) -> None:
        """End streams and answer nothing until `come_up`."""
        self.down = True
        await self._notify()

    async def come_up(self) -> None:
        """Answer again."""
        self.down = False
        await self._notify()

    async def _check(self, context: Context) -> None:
        if self.down:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "down")
