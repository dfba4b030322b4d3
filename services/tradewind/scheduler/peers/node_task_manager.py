"""The node task manager, over gRPC."""

from collections.abc import Collection, Mapping, Sequence

import grpc
import structlog
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict

from tradewind.api.node_task_manager.v1 import (
    cache_pb2,
    component_pb2,
    config_pb2,
    explanation_pb2,
    node_task_pb2,
    notification_pb2,
    queue_pb2,
    retry_pb2,
)
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceStub
from tradewind.scheduler.domain.cache_definition import CacheDefinition, CacheScope
from tradewind.scheduler.domain.chain_state import ChainState, ComponentEnd
from tradewind.scheduler.domain.component_plan import ComponentPlan
from tradewind.scheduler.domain.concurrency import Concurrency, WhenFull
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.fan_out import FanOut
from tradewind.scheduler.domain.flow_definition import KEEP_CYCLES
from tradewind.scheduler.domain.log_line import LogLevel, LogLine, LogSource
from tradewind.scheduler.domain.node_definition import RunIf
from tradewind.scheduler.domain.retry_definition import RetryDefinition
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.standing_limits import StandingLimits
from tradewind.scheduler.domain.submission import (
    ComponentSight,
    StopOrder,
    Submission,
    SubmitAnswer,
    SubmitOutcome,
)
from tradewind.scheduler.peers.calls import calling, milliseconds, set_milliseconds
from tradewind.scheduler.peers.streams import EventStreamPeer
from tradewind.scheduler.peers.submissions import SubmissionStream
from tradewind.server.paging import MAX_PAGE_SIZE
from tradewind.server.reasons import Reason

_log = structlog.get_logger(__name__)
NAME = "node task manager"
_READ_S = 10.0

_OUTCOMES = {
    component_pb2.SUBMIT_OUTCOME_ACCEPTED: SubmitOutcome.ACCEPTED,
    component_pb2.SUBMIT_OUTCOME_DUPLICATE: SubmitOutcome.DUPLICATE,
    component_pb2.SUBMIT_OUTCOME_PLAN_UNKNOWN: SubmitOutcome.PLAN_UNKNOWN,
    component_pb2.SUBMIT_OUTCOME_RUN_CONFLICT: SubmitOutcome.RUN_CONFLICT,
    component_pb2.SUBMIT_OUTCOME_REFUSED: SubmitOutcome.REFUSED,
}
_RUN_IF = {
    RunIf.ALL_SUCCEEDED: node_task_pb2.RUN_IF_ALL_SUCCEEDED,
    RunIf.ANY_SUCCEEDED: node_task_pb2.RUN_IF_ANY_SUCCEEDED,
    RunIf.ALL_DONE: node_task_pb2.RUN_IF_ALL_DONE,
}
_POLICY = {
    FailurePolicy.SKIP_DOWNSTREAM: node_task_pb2.FAILURE_POLICY_SKIP_DOWNSTREAM,
    FailurePolicy.FAIL_FAST: node_task_pb2.FAILURE_POLICY_FAIL_FAST,
    FailurePolicy.CONTINUE: node_task_pb2.FAILURE_POLICY_CONTINUE,
}
_WHEN_FULL = {
    WhenFull.WAIT: node_task_pb2.WHEN_FULL_WAIT,
    WhenFull.DROP_NEW: node_task_pb2.WHEN_FULL_DROP_NEW,
    WhenFull.CANCEL_OLDEST: node_task_pb2.WHEN_FULL_CANCEL_OLDEST,
    WhenFull.KEEP_NEWEST: node_task_pb2.WHEN_FULL_KEEP_NEWEST,
}
_SCOPES = {
    CacheScope.USER: cache_pb2.CACHE_SCOPE_USER,
    CacheScope.FLOW: cache_pb2.CACHE_SCOPE_FLOW,
    CacheScope.GLOBAL: cache_pb2.CACHE_SCOPE_GLOBAL,
}
_ACCEPTED = SubmitAnswer(SubmitOutcome.ACCEPTED)


class NodeTaskManagerPeer:
    """Implements NodeTasks, Caches and Limits."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = NodeTaskManagerServiceStub(channel)
        self._submissions = SubmissionStream(NAME, self._stub.StreamSubmissions)

    def events(self) -> EventStreamPeer:
        return EventStreamPeer(NAME, self._stub.ReceiveEvents())

    async def close(self) -> None:
        """End the stream of submissions."""
        await self._submissions.close()

    async def known(self) -> Collection[str] | None:
        try:
            answer = await self._stub.GetConfig(config_pb2.GetConfigRequest(), timeout=_READ_S)
        except grpc.aio.AioRpcError as error:
            _log.warning("caches could not be asked for", code=error.code().name, details=error.details())
            return None
        return answer.config.caches.keys()

    async def standing(self, user_id: str) -> StandingLimits | None:
        try:
            config = (await self._stub.GetConfig(config_pb2.GetConfigRequest(), timeout=_READ_S)).config
            queues = await self._stub.GetQueueStats(queue_pb2.GetQueueStatsRequest(user_id=user_id), timeout=_READ_S)
        except grpc.aio.AioRpcError as error:
            _log.warning("limits could not be asked for", code=error.code().name, details=error.details())
            return None
        return StandingLimits(
            config.max_running,
            config.max_running_per_user,
            config.max_running_per_flow,
            dict(config.max_running_per_node_type),
            dict(config.rates),
            queues.running,
        )

    async def submit(self, runs: Sequence[Submission], plans: Sequence[ComponentPlan]) -> list[SubmitAnswer]:
        request = pb2.StreamSubmissionsRequest()
        for submission in runs:
            _add_run(request.request, submission)
        for plan in plans:
            _add_plan(request.request, plan)
        return [_answer(result) for result in await self._submissions.submit(request)]

    async def stop(self, order: StopOrder) -> None:
        request = pb2.StopComponentRequest(
            flow_id=order.run.flow_id,
            cycle=order.run.cycle,
            run=order.run.run,
            run_id=order.run_id,
            component_id=order.component_id,
            user_id=order.user_id,
            reason=order.reason,
            by=order.by,
        )
        if order.deadline_ms:
            set_milliseconds(request.deadline, order.deadline_ms)
        async with calling(NAME):
            await self._stub.StopComponent(request, timeout=_READ_S)

    async def release(self, state: ChainState, skips: Mapping[str, str], inputs_json: str) -> None:
        request = pb2.ReleaseComponentsRequest(
            flow_id=state.name.flow_id,
            cycle=state.name.cycle,
            run=state.name.run,
            run_id=state.facts.run_id,
            user_id=state.facts.user_id,
            releases=[
                pb2.ComponentRelease(component_id=each, inputs_json="" if skip else inputs_json, skip_reason=skip)
                for each, skip in skips.items()
            ],
        )
        async with calling(NAME):
            await self._stub.ReleaseComponents(request, timeout=_READ_S)

    async def stop_node(self, state: ChainState, node_id: str, by: str, reason: str) -> node_task_pb2.NodeTask:
        request = pb2.TerminateNodeTaskRequest(
            node_task_id=f"{state.name}:{node_id}", user_id=state.facts.user_id, by=by, reason=reason
        )
        async with calling(NAME):
            response = await self._stub.TerminateNodeTask(request, timeout=_READ_S)
        return response.node_task

    async def notify_stopped(self, flow_id: str, user_id: str, by: str, reason: str) -> None:
        draft = notification_pb2.NotificationDraft(
            user_id=user_id,
            kind=notification_pb2.NOTIFICATION_KIND_FLOW_STOPPED,
            severity=notification_pb2.SEVERITY_WARNING,
            title=f'flow "{flow_id}" was stopped',
            message=f"by {by}: {reason}" if reason else f"by {by}",
            subject=notification_pb2.NotificationSubject(flow_id=flow_id),
        )
        async with calling(NAME):
            await self._stub.PublishNotifications(
                notification_pb2.PublishNotificationsRequest(notifications=[draft]), timeout=_READ_S
            )

    async def components(self, runs: Sequence[ChainState]) -> list[ComponentSight]:
        request = pb2.GetComponentsRequest(
            runs=[
                pb2.RunReference(
                    flow_id=state.name.flow_id,
                    cycle=state.name.cycle,
                    run=state.name.run,
                    user_id=state.facts.user_id,
                    component_ids=[str(place) for place in range(state.facts.component_count)],
                )
                for state in runs
            ]
        )
        async with calling(NAME):
            response = await self._stub.GetComponents(request, timeout=_READ_S)
        return [_sight(component) for component in response.components]

    async def purge(self, flow_id: str, user_id: str) -> bool:
        request = pb2.PurgeFlowRequest(flow_id=flow_id, user_id=user_id)
        async with calling(NAME):
            response = await self._stub.PurgeFlow(request, timeout=_READ_S)
        return response.done

    async def node_tasks(
        self,
        state: ChainState,
        *,
        node_ids: Sequence[str] = (),
        outputs: bool = False,
        signals: bool = False,
        page_size: int = 1000,
        page_token: str = "",
    ) -> pb2.ListNodeTasksResponse:
        request = pb2.ListNodeTasksRequest(
            flow_id=state.name.flow_id,
            cycle=state.name.cycle,
            run=state.name.run,
            user_id=state.facts.user_id,
            include_outputs=outputs,
            include_signals=signals,
            page_size=page_size,
            page_token=page_token,
            node_ids=node_ids,
        )
        async with calling(NAME):
            return await self._stub.ListNodeTasks(request, timeout=_READ_S)

    async def explain(self, node_task_id: str, user_id: str) -> tuple[node_task_pb2.NodeTask, list[Reason]] | None:
        request = explanation_pb2.ExplainNodeTaskRequest(node_task_id=node_task_id, user_id=user_id)
        async with calling(NAME):
            try:
                response = await self._stub.ExplainNodeTask(request, timeout=_READ_S)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    return None
                raise
        reasons = [Reason(each.code, each.sentence, MessageToDict(each.facts)) for each in response.reasons]
        return response.node_task, reasons

    async def outputs(self, node_tasks: Sequence[tuple[str, str]]) -> list[Sequence[tuple[str, str]]]:
        request = pb2.GetNodeOutputsRequest()
        for task_id, user_id in node_tasks:
            request.node_tasks.add(node_task_id=task_id, user_id=user_id)
        async with calling(NAME):
            response = await self._stub.GetNodeOutputs(request, timeout=_READ_S)
        return [[(output.handle, output.value_json) for output in task.outputs] for task in response.node_tasks]

    async def node_logs(self, state: ChainState, after: str) -> tuple[list[LogLine], bool]:
        request = pb2.ListNodeLogsRequest(
            flow_id=state.name.flow_id,
            cycle=state.name.cycle,
            user_id=state.facts.user_id,
            page_size=MAX_PAGE_SIZE,
            after_log_id=after,
        )
        async with calling(NAME):
            response = await self._stub.ListNodeLogs(request, timeout=_READ_S)
        return [_line(state.name.flow_id, log) for log in response.logs], response.more


def _component_end(component: component_pb2.Component) -> ComponentEnd:
    counts = component.counts
    return ComponentEnd(counts.completed, counts.failed, counts.terminated, counts.skipped, component.sinks_completed)


def _add_run(request: pb2.SubmitComponentsRequest, submission: Submission) -> None:
    # Set field by field: on the hot path that is half of what keyword arguments and copies cost.
    state, facts = submission.state, submission.state.facts
    run = request.runs.add()
    run.flow_id, run.cycle, run.run = state.name
    run.run_id = facts.run_id
    run.user_id = facts.user_id
    for component_id, digest in submission.components:
        component = run.components.add()
        component.component_id = component_id
        component.plan_digest = digest
    if facts.handlers is not None:
        for component in run.components:
            component.withheld = component.component_id in facts.handlers.all
    if facts.rerun is not None:
        run.keep_from.run, run.keep_from.run_id = facts.rerun.source, facts.rerun.source_id
        kept = dict(facts.rerun.kept)
        for component in run.components:
            component.kept_nodes.extend(kept.get(component.component_id, ()))
    if facts.inputs_json:
        run.inputs_json = facts.inputs_json
    if facts.traceparent:
        run.traceparent = facts.traceparent
    if facts.deadline_ms:
        set_milliseconds(run.deadline, facts.deadline_ms)
    if facts.keep_cycles != KEEP_CYCLES:
        run.keep_cycles = facts.keep_cycles
    if facts.keep_for_ms:
        run.keep_for.CopyFrom(_duration(facts.keep_for_ms))
    set_milliseconds(run.planned_time, facts.planned_ms)
    set_milliseconds(run.begun_at, facts.start_ms)


def _add_plan(request: pb2.SubmitComponentsRequest, plan: ComponentPlan) -> None:
    message = request.plans.add(
        digest=plan.digest, failure_policy=_POLICY[plan.failure_policy], max_running=plan.max_running
    )
    for node in plan.nodes:
        added = message.nodes.add(
            node_id=node.node_id,
            node_type=node.node_type,
            config_json="" if node.config_json == "{}" else node.config_json,
            run_if=_RUN_IF[node.run_if],
            schedule_to_start=_duration(node.schedule_to_start_ms),
            start_to_close=_duration(node.start_to_close_ms),
            priority=node.priority,
            concurrency=_concurrency(node.concurrency),
        )
        if node.rate is not None:
            added.rate.CopyFrom(node_task_pb2.KeyRate(key=node.rate.key, limit=node.rate.limit, cost=node.rate.cost))
        if node.heartbeat_ms:
            added.heartbeat_timeout.CopyFrom(_duration(node.heartbeat_ms))
        if node.total_ms:
            added.total_timeout.CopyFrom(_duration(node.total_ms))
        if node.cache is not None:
            added.cache.CopyFrom(_cache(node.cache))
        if node.retry is not None:
            added.retry.CopyFrom(_retry(node.retry))
        if node.fan_out is not None:
            added.fan_out.CopyFrom(_fan_out(node.fan_out))
    for edge in plan.edges:
        message.edges.add(
            source=edge.source,
            source_handle=edge.source_handle,
            target=edge.target,
            target_handle=edge.target_handle,
        )


def _concurrency(given: Concurrency | None) -> node_task_pb2.Concurrency | None:
    if given is None:
        return None
    return node_task_pb2.Concurrency(key=given.key, max=given.most, when_full=_WHEN_FULL[given.when_full])


def _fan_out(given: FanOut) -> component_pb2.FanOut:
    message = component_pb2.FanOut(handle=given.handle, max_parallel=given.max_parallel)
    if isinstance(given.min_success, int):
        message.min_count = given.min_success
    elif given.min_success is not None:
        message.min_ratio = given.min_success
    return message


def _cache(cache: CacheDefinition) -> cache_pb2.CacheUse:
    ttl = _duration(cache.ttl_ms) if cache.ttl_ms else None
    return cache_pb2.CacheUse(name=cache.name, key=cache.key, scope=_SCOPES[cache.scope], ttl=ttl)


def _retry(retry: RetryDefinition) -> retry_pb2.RetryPolicy:
    return retry_pb2.RetryPolicy(
        attempts=retry.attempts,
        initial=_duration(retry.initial_ms),
        factor=retry.factor,
        maximum=_duration(retry.maximum_ms),
        jitter=retry.jitter,
        non_retryable=retry.non_retryable,
    )


def _duration(ms: int) -> Duration:
    return Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def _answer(result: component_pb2.SubmitResult) -> SubmitAnswer:
    if result.outcome == component_pb2.SUBMIT_OUTCOME_ACCEPTED:
        return _ACCEPTED
    retry_ms = result.retry_delay.seconds * 1000 + result.retry_delay.nanos // 1_000_000
    outcome = _OUTCOMES.get(result.outcome, SubmitOutcome.REFUSED)
    return SubmitAnswer(outcome, tuple(result.unknown_plans), result.reason, retry_ms)


def _sight(component: component_pb2.Component) -> ComponentSight:
    return ComponentSight(
        RunName(component.flow_id, component.cycle, component.run),
        component.run_id,
        component.component_id,
        component.status == component_pb2.COMPONENT_STATUS_FINISHED,
        _component_end(component),
        component.node_count,
        component.withheld,
    )


def _line(flow_id: str, log: node_task_pb2.NodeLog) -> LogLine:
    level = log.level if log.level in LogLevel.__members__ else LogLevel.INFO
    source = LogSource.SYSTEM if log.source == LogSource.SYSTEM else LogSource.NODE
    return LogLine(
        log.log_id,
        flow_id,
        log.cycle,
        log.node_id,
        LogLevel(level),
        source,
        log.message,
        milliseconds(log, "created_at"),
    )
