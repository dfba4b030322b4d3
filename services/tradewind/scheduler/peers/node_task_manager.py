"""The node task manager, over gRPC."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import grpc
import structlog
from google.protobuf.json_format import MessageToDict

from tradewind.api.node_task_manager.v1 import (
    component_pb2,
    config_pb2,
    explanation_pb2,
    node_task_pb2,
    notification_pb2,
    queue_pb2,
)
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceStub
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.component_plan import ComponentPlan
from tradewind.scheduler.domain.flow_record import FlowStop, Pause
from tradewind.scheduler.domain.json_text import digest_of
from tradewind.scheduler.domain.log_line import LogLevel, LogLine, LogSource
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.submission import ComponentView, StopOrder, Submission, SubmitAnswer
from tradewind.scheduler.domain.system_limits import SystemLimits
from tradewind.scheduler.peers.calls import calling
from tradewind.scheduler.peers.event_stream import EventStreamPeer, component_end, run_name_of
from tradewind.scheduler.peers.submission_mapping import add_plans, add_run, answer_of
from tradewind.scheduler.peers.submissions import SubmissionStream
from tradewind.server.access.identity import is_restricted
from tradewind.server.large_work import in_thread_if
from tradewind.server.paging import MAX_PAGE_SIZE
from tradewind.server.reasons import Reason
from tradewind.server.timestamps import milliseconds, set_timestamp

_log = structlog.get_logger(__name__)
NAME = "node task manager"
_CALL_S = 10.0
_WORKERS_AT_ONCE = 1000
_COMPONENTS_AT_ONCE = 500
"""The states of this many components fit into one message, even if each was stopped with a long reason."""
_RELEASE_BYTES, _RELEASE_OVERHEAD = 512 * 1024, 1024
"""How many characters of releases go with one call, and how many each release takes besides its inputs."""


class NodeTaskManagerPeer:
    """Implements NodeTaskReasons, Caches and Limits."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = NodeTaskManagerServiceStub(channel)
        self._submissions = SubmissionStream(NAME, self._stub.StreamSubmissions)
        self._large_submissions = SubmissionStream(NAME, self._stub.StreamSubmissions)
        """Of large flows, whose plans take long to store."""

    def events(self) -> EventStreamPeer:
        return EventStreamPeer(NAME, self._stub.ReceiveEvents())

    async def close(self) -> None:
        """End the streams of submissions."""
        await self._submissions.close()
        await self._large_submissions.close()

    async def cache_names(self) -> Collection[str] | None:
        try:
            answer = await self._stub.GetConfig(config_pb2.GetConfigRequest(), timeout=_CALL_S)
        except grpc.aio.AioRpcError as error:
            _log.warning("caches_unknown", code=error.code().name, details=error.details())
            return None
        return answer.config.caches.keys()

    async def limits_for(self, user_id: str) -> SystemLimits | None:
        try:
            config = (await self._stub.GetConfig(config_pb2.GetConfigRequest(), timeout=_CALL_S)).config
            queues = await self._stub.GetQueueStats(queue_pb2.GetQueueStatsRequest(user_id=user_id), timeout=_CALL_S)
        except grpc.aio.AioRpcError as error:
            _log.warning("limits_unknown", code=error.code().name, details=error.details())
            return None
        return SystemLimits(
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
            add_run(request.request, submission)
        large = any(submission.large for submission in runs)
        await in_thread_if(large and bool(plans), add_plans, request.request, plans)
        stream = self._large_submissions if large else self._submissions
        return [answer_of(result) for result in await stream.submit(request)]

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
            set_timestamp(request.deadline, order.deadline_ms)
        async with calling(NAME):
            await self._stub.StopComponent(request, timeout=_CALL_S)

    async def release(self, state: ChainState, skips: Mapping[str, str], inputs_json: str) -> None:
        releases = [
            pb2.ComponentRelease(component_id=each, inputs_json="" if skip else inputs_json, skip_reason=skip)
            for each, skip in skips.items()
        ]
        at_once = max(1, _RELEASE_BYTES // (_RELEASE_OVERHEAD + len(inputs_json)))
        for first in range(0, len(releases), at_once):
            request = pb2.ReleaseComponentsRequest(
                flow_id=state.name.flow_id,
                cycle=state.name.cycle,
                run=state.name.run,
                run_id=state.facts.run_id,
                user_id=state.facts.user_id,
                releases=releases[first : first + at_once],
            )
            async with calling(NAME):
                await self._stub.ReleaseComponents(request, timeout=_CALL_S)

    async def stop_node(self, state: ChainState, node_id: str, by: str, reason: str) -> node_task_pb2.NodeTask:
        request = pb2.TerminateNodeTaskRequest(
            node_task_id=f"{state.name}:{node_id}", user_id=state.facts.user_id, by=by, reason=reason
        )
        async with calling(NAME):
            response = await self._stub.TerminateNodeTask(request, timeout=_CALL_S)
        return response.node_task

    async def notify_stopped(self, flow_id: str, user_id: str, stop: FlowStop) -> None:
        draft = notification_pb2.NotificationDraft(
            user_id=user_id,
            kind=notification_pb2.NOTIFICATION_KIND_FLOW_STOPPED,
            severity=notification_pb2.SEVERITY_WARNING,
            title=f'flow "{flow_id}" was stopped',
            message=f'by "{stop.by}"' + (f": {stop.reason}" if stop.reason else ""),
            subject=notification_pb2.NotificationSubject(flow_id=flow_id),
            key=digest_of(f"{flow_id} stopped at {stop.at_ms}"),
        )
        await self._notify(draft)

    async def notify_paused(self, flow_id: str, user_id: str, pause: Pause) -> None:
        draft = notification_pb2.NotificationDraft(
            user_id=user_id,
            kind=notification_pb2.NOTIFICATION_KIND_FLOW_PAUSED,
            severity=notification_pb2.SEVERITY_ERROR,
            title=f'flow "{flow_id}" is paused until somebody resumes it',
            message=pause.note,
            subject=notification_pb2.NotificationSubject(flow_id=flow_id, cycle=pause.failed_cycle),
            key=digest_of(f"{flow_id} paused at {pause.at_ms}"),
        )
        await self._notify(draft)

    async def _notify(self, draft: notification_pb2.NotificationDraft) -> None:
        async with calling(NAME):
            await self._stub.PublishNotifications(
                notification_pb2.PublishNotificationsRequest(notifications=[draft]), timeout=_CALL_S
            )

    async def components(self, runs: Sequence[ChainState]) -> list[ComponentView]:
        found: list[ComponentView] = []
        for references in _references(runs):
            async with calling(NAME):
                response = await self._stub.GetComponents(pb2.GetComponentsRequest(runs=references), timeout=_CALL_S)
            found += map(_view, response.components)
        return found

    async def purge(self, flow_id: str, user_id: str, schedule_epoch: int) -> bool:
        request = pb2.PurgeFlowRequest(flow_id=flow_id, user_id=user_id, schedule_epoch=schedule_epoch)
        async with calling(NAME):
            response = await self._stub.PurgeFlow(request, timeout=_CALL_S)
        return response.done

    async def node_tasks(
        self,
        state: ChainState,
        *,
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
        )
        async with calling(NAME):
            return await self._stub.ListNodeTasks(request, timeout=_CALL_S)

    async def explain(self, node_task_id: str, user_id: str) -> tuple[node_task_pb2.NodeTask, list[Reason]] | None:
        request = explanation_pb2.ExplainNodeTaskRequest(
            node_task_id=node_task_id, user_id=user_id, only_own=is_restricted()
        )
        async with calling(NAME):
            try:
                response = await self._stub.ExplainNodeTask(request, timeout=_CALL_S)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    return None
                raise
        reasons = [Reason(each.code, each.sentence, MessageToDict(each.facts)) for each in response.reasons]
        return response.node_task, reasons

    async def connected(self, worker_ids: Sequence[str]) -> Collection[str] | None:
        found: list[str] = []
        for first in range(0, len(worker_ids), _WORKERS_AT_ONCE):
            request = pb2.ListConnectionsRequest(worker_ids=worker_ids[first : first + _WORKERS_AT_ONCE])
            try:
                answer = await self._stub.ListConnections(request, timeout=_CALL_S)
            except grpc.aio.AioRpcError as error:
                _log.warning("connections_unknown", code=error.code().name, details=error.details())
                return None
            found += [each.worker_id for each in answer.connections]
        return frozenset(found)

    async def outputs(self, node_tasks: Sequence[tuple[str, str]]) -> list[Sequence[tuple[str, str]]]:
        request = pb2.GetNodeOutputsRequest()
        for task_id, user_id in node_tasks:
            request.node_tasks.add(node_task_id=task_id, user_id=user_id)
        async with calling(NAME):
            response = await self._stub.GetNodeOutputs(request, timeout=_CALL_S)
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
            response = await self._stub.ListNodeLogs(request, timeout=_CALL_S)
        return [_line(state.name.flow_id, log) for log in response.logs], response.more


def _references(runs: Sequence[ChainState]) -> Iterator[list[pb2.RunReference]]:
    """Yield the names of all components of runs, in pieces whose answers fit into one message."""
    components = [(state, str(place)) for state in runs for place in range(state.facts.component_count)]
    for first in range(0, len(components), _COMPONENTS_AT_ONCE):
        by_run: dict[RunName, pb2.RunReference] = {}
        for state, component_id in components[first : first + _COMPONENTS_AT_ONCE]:
            if state.name not in by_run:
                by_run[state.name] = pb2.RunReference(**state.name._asdict(), user_id=state.facts.user_id)
            by_run[state.name].component_ids.append(component_id)
        yield list(by_run.values())


def _view(component: component_pb2.Component) -> ComponentView:
    return ComponentView(
        run_name_of(component),
        component.run_id,
        component.component_id,
        component.status == component_pb2.COMPONENT_STATUS_FINISHED,
        component_end(component),
        component.withheld,
    )


def _line(flow_id: str, log: node_task_pb2.NodeLog) -> LogLine:
    level = _LEVELS.get(log.level, LogLevel.INFO)
    source = LogSource.SYSTEM if log.source == LogSource.SYSTEM else LogSource.NODE
    return LogLine(
        log.log_id, flow_id, log.cycle, log.node_id, level, source, log.message, milliseconds(log.created_at)
    )


_LEVELS = {level.value: level for level in LogLevel}
