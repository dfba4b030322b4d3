"""NodeTaskManagerService: parse, call the use case, answer."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from tradewind.api.node_task_manager.v1 import config_pb2, doctor_pb2, explanation_pb2, queue_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.node_task_manager.domain.component import Release
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.ports.work import Held, Outcome
from tradewind.node_task_manager.rpc import (
    cache_mapping,
    checks,
    config_mapping,
    mapping,
    queue_mapping,
    submission_checks,
    submission_mapping,
    work_mapping,
)
from tradewind.node_task_manager.rpc.ad_hoc_handlers import AdHocHandlers
from tradewind.node_task_manager.rpc.cache_handlers import CacheHandlers
from tradewind.node_task_manager.rpc.connection_handlers import ConnectionHandlers
from tradewind.node_task_manager.rpc.dead_letter_handlers import DeadLetterHandlers
from tradewind.node_task_manager.rpc.eager_mapping import require_no_eager
from tradewind.node_task_manager.rpc.event_stream import EventStream
from tradewind.node_task_manager.rpc.notification_handlers import NotificationHandlers
from tradewind.node_task_manager.rpc.signal_handlers import SignalHandlers
from tradewind.node_task_manager.rpc.sub_flow_handlers import SubFlowHandlers
from tradewind.node_task_manager.rpc.submission_stream import SubmissionStream
from tradewind.node_task_manager.rpc.times import milliseconds, timestamp
from tradewind.node_task_manager.rpc.unknown_tokens import remove_unknown_tokens
from tradewind.node_task_manager.rpc.work_stream import WorkStream
from tradewind.node_task_manager.use_cases.connect import Connections
from tradewind.node_task_manager.use_cases.events import EventFeed
from tradewind.node_task_manager.use_cases.explain import ExplainNodeTask
from tradewind.node_task_manager.use_cases.node_task_records import ANSWER_BYTES, HeldPlace, NodeTaskRecords
from tradewind.node_task_manager.use_cases.notes import Notes
from tradewind.node_task_manager.use_cases.queue_statistics import CountQueues
from tradewind.node_task_manager.use_cases.record_connections import RecordConnections
from tradewind.node_task_manager.use_cases.stop import Stop
from tradewind.node_task_manager.use_cases.submit import SubmitRuns
from tradewind.node_task_manager.use_cases.trace_nodes import TraceNodes
from tradewind.node_task_manager.use_cases.unary_work import UnaryWork
from tradewind.node_task_manager.use_cases.workers import Offer
from tradewind.server.clock import Clock
from tradewind.server.doctor import Doctor
from tradewind.server.doctor_answers import doctor_answers
from tradewind.server.errors import ErrorTable
from tradewind.server.faults import FailedPrecondition, InvalidInput
from tradewind.server.paging import page_position, page_size_of, page_token
from tradewind.server.reason_answers import reason_messages

_MAX_CLAIMED = 500
_MAX_REASON = 1024
_MAX_BY = 128

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(eq=False, kw_only=True)
class NodeTaskManagerHandlers(
    AdHocHandlers,
    CacheHandlers,
    ConnectionHandlers,
    DeadLetterHandlers,
    NotificationHandlers,
    SignalHandlers,
    SubFlowHandlers,
):
    """The gRPC face of the node task manager."""

    submit: SubmitRuns
    stop: Stop
    records: NodeTaskRecords
    count_queues: CountQueues
    unary: UnaryWork
    connections: Connections
    notes: Notes
    feed: EventFeed
    errors: ErrorTable
    doctor: Doctor
    record_connections: RecordConnections
    explain: ExplainNodeTask
    traces: TraceNodes | None
    shards: Collection[int]
    limits: Limits
    clock: Clock

    async def SubmitComponents(
        self, request: pb2.SubmitComponentsRequest, context: Context
    ) -> pb2.SubmitComponentsResponse:
        return await self._submitted(request)

    async def _submitted(self, request: pb2.SubmitComponentsRequest) -> pb2.SubmitComponentsResponse:
        submission_checks.submission(request)
        runs = [submission_mapping.run_submission(run) for run in request.runs]
        results = await self.submit(runs, [submission_mapping.plan(plan) for plan in request.plans])
        return pb2.SubmitComponentsResponse(results=[submission_mapping.submit_result(result) for result in results])

    async def StopComponent(self, request: pb2.StopComponentRequest, context: Context) -> pb2.StopComponentResponse:
        checks.stop(request)
        skipped, terminating = await self.stop.component(
            RunName(request.flow_id, request.cycle, request.run),
            request.run_id,
            request.user_id,
            request.component_id,
            reason=request.reason[:_MAX_REASON] or "stopped",
            by=request.by[:_MAX_BY] or "system",
            deadline_ms=milliseconds(request.deadline),
        )
        return pb2.StopComponentResponse(skipped=skipped, terminating=terminating)

    async def ReleaseComponents(
        self, request: pb2.ReleaseComponentsRequest, context: Context
    ) -> pb2.ReleaseComponentsResponse:
        checks.release(request)
        releases = [
            Release(each.component_id, each.inputs_json, each.skip_reason[:_MAX_REASON]) for each in request.releases
        ]
        run = RunName(request.flow_id, request.cycle, request.run)
        await self.stop.release(run, request.run_id, request.user_id, releases)
        return pb2.ReleaseComponentsResponse()

    async def TerminateNodeTask(
        self, request: pb2.TerminateNodeTaskRequest, context: Context
    ) -> pb2.TerminateNodeTaskResponse:
        checks.task_id(request.node_task_id, request.user_id)
        view = await self.stop.node_task(
            request.node_task_id,
            request.user_id,
            request.reason[:_MAX_REASON] or "stopped",
            request.by[:_MAX_BY] or "system",
        )
        return pb2.TerminateNodeTaskResponse(node_task=mapping.node_task(view))

    async def PurgeFlow(self, request: pb2.PurgeFlowRequest, context: Context) -> pb2.PurgeFlowResponse:
        checks.identifiers(flow_id=request.flow_id, user_id=request.user_id)
        done, removed = await self.stop.purge(request.flow_id, request.user_id)
        return pb2.PurgeFlowResponse(done=done, removed=removed)

    async def GetComponents(self, request: pb2.GetComponentsRequest, context: Context) -> pb2.GetComponentsResponse:
        checks.runs(request.runs)
        found = []
        for run in request.runs:
            name = RunName(run.flow_id, run.cycle, run.run)
            found += await self.records.components(name, run.user_id, run.component_ids)
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
        checks.identifiers(flow_id=request.flow_id, user_id=request.user_id)
        after = page_position(request.page_token, int) or 0
        run, limit = RunName(request.flow_id, request.cycle, request.run), page_size_of(request.page_size)
        user_id, outputs = request.user_id, request.include_outputs
        if request.items_of:
            checks.identifiers(items_of=request.items_of)
            items = await self.records.items(run, user_id, request.items_of, after, limit, outputs=outputs)
            return pb2.ListNodeTasksResponse(
                node_tasks=[mapping.node_task(each) for each in items[0]], next_page_token=page_token(items[1] or None)
            )
        views, following = await self.records.node_tasks(
            run, user_id, after, limit, outputs=outputs, only=request.node_ids
        )
        signals = await self.records.signals(views, request.user_id) if request.include_signals else []
        return pb2.ListNodeTasksResponse(
            node_tasks=[mapping.node_task(each) for each in views],
            signals=mapping.signals(signals),
            next_page_token=page_token(following or None),
        )

    async def ListWorkerTasks(
        self, request: pb2.ListWorkerTasksRequest, context: Context
    ) -> pb2.ListWorkerTasksResponse:
        checks.identifiers(worker_id=request.worker_id)
        after = page_position(request.page_token, HeldPlace)
        views, following = await self.records.held_by(request.worker_id, after, page_size_of(request.page_size))
        return pb2.ListWorkerTasksResponse(
            node_tasks=[mapping.node_task(each) for each in views], next_page_token=page_token(following)
        )

    async def ListNodeLogs(self, request: pb2.ListNodeLogsRequest, context: Context) -> pb2.ListNodeLogsResponse:
        checks.identifiers(flow_id=request.flow_id, user_id=request.user_id)
        checks.log_position(request.after_log_id)
        lines, more = await self.records.lines(
            request.flow_id, request.cycle, request.user_id, request.after_log_id, page_size_of(request.page_size)
        )
        return pb2.ListNodeLogsResponse(logs=[mapping.log_line(line) for line in lines], more=more)

    async def GetQueueStats(
        self, request: queue_pb2.GetQueueStatsRequest, context: Context
    ) -> queue_pb2.GetQueueStatsResponse:
        named = {"user_id": request.user_id, "node_type": request.node_type}
        checks.identifiers(**{name: value for name, value in named.items() if value})
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
        view, reasons = await self.explain(request.node_task_id, request.user_id)
        return explanation_pb2.ExplainNodeTaskResponse(
            node_task=mapping.node_task(view), reasons=reason_messages(reasons)
        )

    async def RunDoctor(
        self, request: doctor_pb2.RunDoctorRequest, context: Context
    ) -> AsyncIterator[doctor_pb2.RunDoctorResponse]:
        async for answer in doctor_answers(self.doctor, request.mend, doctor_pb2.RunDoctorResponse):
            yield answer

    # These write to the context instead of yielding, so that a write waits for nothing but the stream.
    async def StreamSubmissions(self, request_iterator: object, context: Context) -> None:  # type: ignore[override]
        await SubmissionStream(self._submitted, self.errors, self.streams).serve(context)

    async def ReceiveEvents(self, request_iterator: object, context: Context) -> None:  # type: ignore[override]
        with self.streams.opened():
            await EventStream(self.feed).serve(context)

    async def Work(self, request_iterator: object, context: Context) -> None:  # type: ignore[override]
        with self.streams.opened():
            caches = self.config.caches
            stream = WorkStream(self.connections, self.notes, self.limits, self.clock, caches, self.traces)
            await stream.serve(context)

    async def ClaimNodeTasks(self, request: pb2.ClaimNodeTasksRequest, context: Context) -> pb2.ClaimNodeTasksResponse:
        checks.claim(request)
        limit = min(request.limit or 1, _MAX_CLAIMED)
        offers = dict.fromkeys(request.node_types, Offer()) | cache_mapping.offers(request.node_types, request.offers)
        self.record_connections.claimed(request.worker_id, frozenset(request.node_types))
        ready = await self.unary.claim(request.worker_id, offers, limit, ANSWER_BYTES)
        now_ms = self.clock.now_ms()
        assignments = [work_mapping.assignment(each, now_ms) for each in ready]
        return pb2.ClaimNodeTasksResponse(assignments=assignments, sent_at=timestamp(now_ms))

    async def RenewLeases(self, request: pb2.RenewLeasesRequest, context: Context) -> pb2.RenewLeasesResponse:
        checks.identifiers(worker_id=request.worker_id)
        checks.at_most("tokens", request.tokens, _MAX_CLAIMED)
        held = work_mapping.held("tokens", request.tokens)
        work_mapping.require_shards("tokens", held, self.shards)
        lost, terminations, deadline = await self.unary.renew(request.worker_id, held)
        return pb2.RenewLeasesResponse(
            losses=_losses(lost),
            terminations=[
                work_mapping.termination(shard, each, self.limits.stop_grace_ms) for shard, each in terminations
            ],
            lease_deadline=timestamp(deadline),
        )

    async def CompleteNodeTasks(
        self, request: pb2.CompleteNodeTasksRequest, context: Context
    ) -> pb2.CompleteNodeTasksResponse:
        checks.at_most("completions", request.completions, _MAX_CLAIMED)
        require_no_eager(request.completions)
        outcomes = [work_mapping.completion(at, each) for at, each in enumerate(request.completions)]
        work_mapping.require_shards("completions", outcomes, self.shards)
        work_mapping.note_ends(self.traces, request.completions)
        return pb2.CompleteNodeTasksResponse(losses=await self._ended(request.worker_id, outcomes))

    async def FailNodeTasks(self, request: pb2.FailNodeTasksRequest, context: Context) -> pb2.FailNodeTasksResponse:
        checks.at_most("failures", request.failures, _MAX_CLAIMED)
        outcomes = [work_mapping.failure(at, each) for at, each in enumerate(request.failures)]
        work_mapping.require_shards("failures", outcomes, self.shards)
        work_mapping.note_ends(self.traces, request.failures)
        self.notes.add((), list(work_mapping.failure_lines(outcomes)))
        return pb2.FailNodeTasksResponse(losses=await self._ended(request.worker_id, outcomes))

    async def ReportNodeTasks(
        self, request: pb2.ReportNodeTasksRequest, context: Context
    ) -> pb2.ReportNodeTasksResponse:
        checks.report(request)
        try:
            return await self._reported(request)
        except InvalidInput:
            # Whoever reaches a worker may have handed it anything: that must not keep back what else it has to say.
            if not (unknown := remove_unknown_tokens(request, self.shards)):
                raise
        answer = await self._reported(request)
        answer.losses.extend(unknown)
        return answer

    async def _reported(self, request: pb2.ReportNodeTasksRequest) -> pb2.ReportNodeTasksResponse:
        require_no_eager(request.completions)
        outcomes = [work_mapping.completion(at, each) for at, each in enumerate(request.completions)]
        failures = [work_mapping.failure(at, each) for at, each in enumerate(request.failures)]
        outcomes += failures
        given_back = work_mapping.held("give_back_tokens", request.give_back_tokens)
        held = work_mapping.held("held_tokens", request.held_tokens)
        progress = [work_mapping.progress(at, each) for at, each in enumerate(request.progress)]
        lines = [work_mapping.line(at, each) for at, each in enumerate(request.logs)]
        named: dict[str, Sequence[tuple[int, object]]] = {
            "completions and failures": outcomes,
            "give_back_tokens": given_back,
            "held_tokens": held,
        }
        named |= {"progress": progress, "logs": lines}
        for path, items in named.items():
            work_mapping.require_shards(path, items, self.shards)
        work_mapping.note_ends(self.traces, request.completions)
        work_mapping.note_ends(self.traces, request.failures)
        self.notes.add(progress, [*lines, *work_mapping.failure_lines(failures)])
        lost = await self.unary.end(request.worker_id, outcomes)
        if given_back:
            # Of what holds no lease no line is kept.
            await self.notes.wait_written()
        await self.unary.give_back(request.worker_id, given_back)
        unrenewed, terminations, deadline = await self.unary.renew(request.worker_id, held)
        return pb2.ReportNodeTasksResponse(
            losses=_losses([*lost, *unrenewed]),
            terminations=[
                work_mapping.termination(shard, each, self.limits.stop_grace_ms) for shard, each in terminations
            ],
            lease_deadline=timestamp(deadline) if held else None,
        )

    async def _ended(self, worker_id: str, outcomes: Sequence[tuple[int, Outcome]]) -> list[work_pb2.LeaseLoss]:
        lost = await self.unary.end(worker_id, outcomes)
        if len(outcomes) == 1 and lost:
            (_, held, reason) = lost[0]
            raise FailedPrecondition("LEASE_LOST", reason, f"node_tasks/{held.task_id}")
        return _losses(lost)


def _losses(lost: Sequence[tuple[int, Held, str]]) -> list[work_pb2.LeaseLoss]:
    return [
        work_pb2.LeaseLoss(token=work_mapping.token_text(shard, held), reason=reason) for shard, held, reason in lost
    ]
