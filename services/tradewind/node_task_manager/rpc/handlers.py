"""NodeTaskManagerService: parse, call the use case, answer."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tradewind.api.node_task_manager.v1 import config_pb2, doctor_pb2, explanation_pb2, queue_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.node_task_manager.domain.component import Release, RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.rpc import (
    checks,
    config_mapping,
    mapping,
    queue_mapping,
    submission_checks,
    submission_mapping,
)
from tradewind.node_task_manager.rpc.ad_hoc_handlers import AdHocHandlers
from tradewind.node_task_manager.rpc.cache_handlers import CacheHandlers
from tradewind.node_task_manager.rpc.connection_handlers import ConnectionHandlers
from tradewind.node_task_manager.rpc.dead_letter_handlers import DeadLetterHandlers
from tradewind.node_task_manager.rpc.event_stream import EventStream
from tradewind.node_task_manager.rpc.notification_handlers import NotificationHandlers
from tradewind.node_task_manager.rpc.signal_handlers import SignalHandlers
from tradewind.node_task_manager.rpc.stop_mapping import MAX_REASON, reason_and_actor
from tradewind.node_task_manager.rpc.sub_flow_handlers import SubFlowHandlers
from tradewind.node_task_manager.rpc.submission_stream import SubmissionStream
from tradewind.node_task_manager.rpc.work_handlers import WorkHandlers
from tradewind.node_task_manager.use_cases.control_runs import ControlRuns
from tradewind.node_task_manager.use_cases.events import EventFeed
from tradewind.node_task_manager.use_cases.explain import ExplainNodeTask
from tradewind.node_task_manager.use_cases.node_task_records import HeldPlace, NodeTaskRecords
from tradewind.node_task_manager.use_cases.queue_statistics import CountQueues
from tradewind.node_task_manager.use_cases.submit import SubmitRuns
from tradewind.server.access.identity import is_restricted
from tradewind.server.all_faults import every
from tradewind.server.doctor import Doctor
from tradewind.server.doctor_answers import doctor_answers
from tradewind.server.errors import ErrorAnswers
from tradewind.server.identifiers import require_identifiers
from tradewind.server.interception import Context
from tradewind.server.large_work import LARGE_BYTES, in_thread_if
from tradewind.server.paging import page_of, page_size_of, page_token
from tradewind.server.reason_answers import reason_messages
from tradewind.server.timestamps import milliseconds

_MANY_SIGNALS = 2000
"""A single node may have 100 000 edges."""


@dataclass(eq=False, kw_only=True)
class NodeTaskManagerHandlers(
    AdHocHandlers,
    CacheHandlers,
    ConnectionHandlers,
    DeadLetterHandlers,
    NotificationHandlers,
    SignalHandlers,
    SubFlowHandlers,
    WorkHandlers,
):
    """The gRPC side of the node task manager."""

    submit: SubmitRuns
    control: ControlRuns
    records: NodeTaskRecords
    count_queues: CountQueues
    feed: EventFeed
    errors: ErrorAnswers
    doctor: Doctor
    explain: ExplainNodeTask

    async def SubmitComponents(
        self, request: pb2.SubmitComponentsRequest, context: Context
    ) -> pb2.SubmitComponentsResponse:
        response = pb2.SubmitComponentsResponse()
        await self._submit_and_answer(request, response)
        return response

    async def _submit_and_answer(
        self, request: pb2.SubmitComponentsRequest, response: pb2.SubmitComponentsResponse
    ) -> None:
        large = bool(request.plans) and request.ByteSize() > LARGE_BYTES
        results = await self.submit(*await in_thread_if(large, _runs_and_plans, request))
        add = response.results.add
        for result in results:
            submission_mapping.fill_submit_result(add(), result)

    async def StopComponent(self, request: pb2.StopComponentRequest, context: Context) -> pb2.StopComponentResponse:
        checks.stop(request)
        reason, by = reason_and_actor(request, "stopped", "system")
        skipped, terminating = await self.control.stop_component(
            RunName(request.flow_id, request.cycle, request.run),
            request.run_id,
            request.user_id,
            request.component_id,
            reason=reason,
            by=by,
            deadline_ms=milliseconds(request.deadline),
        )
        return pb2.StopComponentResponse(skipped=skipped, terminating=terminating)

    async def ReleaseComponents(
        self, request: pb2.ReleaseComponentsRequest, context: Context
    ) -> pb2.ReleaseComponentsResponse:
        checks.release(request)
        releases = [
            Release(each.component_id, each.inputs_json, each.skip_reason[:MAX_REASON]) for each in request.releases
        ]
        run = RunName(request.flow_id, request.cycle, request.run)
        await self.control.release_components(run, request.run_id, request.user_id, releases)
        return pb2.ReleaseComponentsResponse()

    async def TerminateNodeTask(
        self, request: pb2.TerminateNodeTaskRequest, context: Context
    ) -> pb2.TerminateNodeTaskResponse:
        checks.task_id(request.node_task_id, request.user_id)
        reason, by = reason_and_actor(request, "stopped", "system")
        view = await self.control.terminate_node_task(request.node_task_id, request.user_id, reason, by)
        return pb2.TerminateNodeTaskResponse(node_task=mapping.node_task(view))

    async def PurgeFlow(self, request: pb2.PurgeFlowRequest, context: Context) -> pb2.PurgeFlowResponse:
        require_identifiers(flow_id=request.flow_id, user_id=request.user_id)
        done, removed = await self.control.purge_flow(request.flow_id, request.schedule_epoch)
        return pb2.PurgeFlowResponse(done=done, removed=removed)

    async def GetComponents(self, request: pb2.GetComponentsRequest, context: Context) -> pb2.GetComponentsResponse:
        checks.runs(request.runs)
        runs = ((RunName(run.flow_id, run.cycle, run.run), run.user_id, run.component_ids) for run in request.runs)
        found = await self.records.components_of(runs)
        return pb2.GetComponentsResponse(components=[mapping.component(each) for each in found])

    async def GetNodeTask(self, request: pb2.GetNodeTaskRequest, context: Context) -> pb2.GetNodeTaskResponse:
        checks.task_id(request.node_task_id, request.user_id)
        view = await self.records.node_task(request.node_task_id, request.user_id, outputs=request.include_outputs)
        return pb2.GetNodeTaskResponse(node_task=mapping.node_task(view, config=True))

    async def GetNodeOutputs(self, request: pb2.GetNodeOutputsRequest, context: Context) -> pb2.GetNodeOutputsResponse:
        checks.references(request.node_tasks)
        wanted = [(each.node_task_id, each.user_id) for each in request.node_tasks]
        found = await self.records.outputs(wanted)
        return pb2.GetNodeOutputsResponse(node_tasks=[mapping.node_outputs(*each) for each in found])

    async def ListNodeTasks(self, request: pb2.ListNodeTasksRequest, context: Context) -> pb2.ListNodeTasksResponse:
        named = {"flow_id": request.flow_id, "user_id": request.user_id}
        if request.items_of:
            named["items_of"] = request.items_of
        position, limit = page_of(request, int, **named)
        run, after = RunName(request.flow_id, request.cycle, request.run), position or 0
        user_id, outputs = request.user_id, request.include_outputs
        if request.items_of:
            views, following = await self.records.items(run, user_id, request.items_of, after, limit, outputs=outputs)
        else:
            views, following = await self.records.node_tasks(
                run, user_id, after, limit, outputs=outputs, only=request.node_ids
            )
        response = pb2.ListNodeTasksResponse(
            node_tasks=[mapping.node_task(each) for each in views], next_page_token=page_token(following or None)
        )
        if request.include_signals and not request.items_of:
            signals = await self.records.signals(views, user_id)
            response.signals.extend(await in_thread_if(len(signals) > _MANY_SIGNALS, mapping.signals, signals))
        return response

    async def ListWorkerTasks(
        self, request: pb2.ListWorkerTasksRequest, context: Context
    ) -> pb2.ListWorkerTasksResponse:
        after, limit = page_of(request, HeldPlace, worker_id=request.worker_id)
        views, following = await self.records.held_by(request.worker_id, after, limit)
        return pb2.ListWorkerTasksResponse(
            node_tasks=[mapping.node_task(each) for each in views], next_page_token=page_token(following)
        )

    async def ListNodeLogs(self, request: pb2.ListNodeLogsRequest, context: Context) -> pb2.ListNodeLogsResponse:
        _, _, size = every(
            lambda: require_identifiers(flow_id=request.flow_id, user_id=request.user_id),
            lambda: checks.log_position(request.after_log_id),
            lambda: page_size_of(request.page_size),
        )
        run = RunName(request.flow_id, request.cycle, 0)
        lines, more = await self.records.lines(run, request.user_id, request.after_log_id, size)
        return pb2.ListNodeLogsResponse(logs=[mapping.log_line(line) for line in lines], more=more)

    async def GetQueueStats(
        self, request: queue_pb2.GetQueueStatsRequest, context: Context
    ) -> queue_pb2.GetQueueStatsResponse:
        named = {"user_id": request.user_id, "node_type": request.node_type}
        require_identifiers(**{name: value for name, value in named.items() if value})
        return queue_mapping.queue_stats(await self.count_queues(request.user_id, request.node_type))

    async def GetConfig(self, request: config_pb2.GetConfigRequest, context: Context) -> config_pb2.GetConfigResponse:
        await self.config.load()
        config = self.config.config
        return config_pb2.GetConfigResponse(
            config=config_mapping.config_message(config), etag=config_mapping.etag(config)
        )

    async def UpdateConfig(
        self, request: config_pb2.UpdateConfigRequest, context: Context
    ) -> config_pb2.UpdateConfigResponse:
        config = await self.config.update(*config_mapping.update(request))
        return config_pb2.UpdateConfigResponse(
            config=config_mapping.config_message(config), etag=config_mapping.etag(config)
        )

    async def ExplainNodeTask(
        self, request: explanation_pb2.ExplainNodeTaskRequest, context: Context
    ) -> explanation_pb2.ExplainNodeTaskResponse:
        checks.task_id(request.node_task_id, request.user_id)
        only_own = request.only_own or is_restricted()
        view, reasons = await self.explain(request.node_task_id, request.user_id, only_own=only_own)
        return explanation_pb2.ExplainNodeTaskResponse(
            node_task=mapping.node_task(view), reasons=reason_messages(reasons)
        )

    async def RunDoctor(
        self, request: doctor_pb2.RunDoctorRequest, context: Context
    ) -> AsyncIterator[doctor_pb2.RunDoctorResponse]:
        async for answer in doctor_answers(self.doctor, request.mend, doctor_pb2.RunDoctorResponse):
            yield answer

    # These two write to the context instead of yielding, so that a write waits for nothing but the stream.
    async def StreamSubmissions(self, request_iterator: object, context: Context) -> None:  # type: ignore[override]
        await SubmissionStream(self._submit_and_answer, self.errors, self.streams).serve(context)

    async def ReceiveEvents(self, request_iterator: object, context: Context) -> None:  # type: ignore[override]
        with self.streams.opened():
            await EventStream(self.feed).serve(context)


def _runs_and_plans(request: pb2.SubmitComponentsRequest) -> tuple[list[RunSubmission], list[Plan]]:
    """Parse a submission, with what storing and reading its plans needs. Raises InvalidInput with every fault."""
    messages = request.runs[:]
    runs = [submission_mapping.run_submission(message) for message in messages]
    submission_checks.submission(messages, runs, request.plans)
    return runs, [submission_mapping.plan(plan) for plan in request.plans]
