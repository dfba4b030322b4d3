"""SchedulerService: parse, call the use case, answer."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tradewind.api.scheduler.v1 import cycle_pb2, doctor_pb2, explanation_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.domain.log_line import LogLevel
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.rpc import cycle_mapping, flow_mapping, watch_mapping
from tradewind.scheduler.rpc.backfill_handlers import BackfillHandlers
from tradewind.scheduler.rpc.checks import actor_and_reason, chosen, node_or_item
from tradewind.scheduler.rpc.cycle_handlers import cycle_of
from tradewind.scheduler.rpc.definition_handlers import DefinitionHandlers
from tradewind.scheduler.rpc.job_handlers import JobHandlers
from tradewind.scheduler.rpc.memory_handlers import MemoryHandlers
from tradewind.scheduler.rpc.run_handlers import RunHandlers
from tradewind.scheduler.rpc.run_requests import wait_of
from tradewind.scheduler.rpc.times import ms_of
from tradewind.scheduler.use_cases.change_flow import ChangeFlow
from tradewind.scheduler.use_cases.describe_cycle import DescribeCycle
from tradewind.scheduler.use_cases.explain_flow import ExplainFlow
from tradewind.scheduler.use_cases.explain_node import ExplainNode
from tradewind.scheduler.use_cases.read_flows import CycleFilter, FlowFilter
from tradewind.scheduler.use_cases.read_logs import LineFilter, LogPosition, ReadLogs
from tradewind.scheduler.use_cases.read_schedules import ReadSchedules
from tradewind.scheduler.use_cases.watch_flows import WatchFlows
from tradewind.server.all_faults import every
from tradewind.server.channels import MESSAGE_BYTES
from tradewind.server.doctor import Doctor
from tradewind.server.doctor_answers import doctor_answers
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import require_identifiers
from tradewind.server.interception import Context
from tradewind.server.paging import MAX_PAGE_SIZE, page_of, page_size_of, page_token
from tradewind.server.reason_answers import reason_messages
from tradewind.server.timestamps import set_timestamp

MAX_WATCHED = 1000
_UPCOMING = 10


@dataclass(eq=False, kw_only=True)
class SchedulerHandlers(DefinitionHandlers, MemoryHandlers, BackfillHandlers, RunHandlers, JobHandlers):
    """Any replica answers any call."""

    schedules: ReadSchedules
    change: ChangeFlow
    describe: DescribeCycle
    logs: ReadLogs
    watch: WatchFlows
    doctor: Doctor
    explain_flow: ExplainFlow
    explain_node: ExplainNode

    async def GetFlow(self, request: pb2.GetFlowRequest, context: Context) -> pb2.GetFlowResponse:
        require_identifiers(flow_id=request.flow_id)
        response = pb2.GetFlowResponse(flow=flow_mapping.flow(await self.read.flow(request.flow_id)))
        latest = await self.read.latest(request.flow_id)
        if latest is not None:
            cycle_mapping.fill_cycle(response.current_cycle, latest)
            if response.ByteSize() > MESSAGE_BYTES:
                cycle_mapping.leave_out_large_fields(response.current_cycle)
        return response

    async def ListFlows(self, request: pb2.ListFlowsRequest, context: Context) -> pb2.ListFlowsResponse:
        statuses, created_after_ms, created_before_ms, (after, limit) = every(
            lambda: chosen("statuses", request.statuses, flow_mapping.STATUS_OF_FLOW),
            lambda: ms_of(request, "created_after"),
            lambda: ms_of(request, "created_before"),
            lambda: page_of(request, str),
        )
        wanted = FlowFilter(
            statuses=statuses,
            labels=dict(request.labels),
            created_after_ms=created_after_ms,
            created_before_ms=created_before_ms,
            user_id=request.user_id,
        )
        flows, following = await self.read.flows(wanted, after or "", limit)
        return pb2.ListFlowsResponse(
            flows=[flow_mapping.flow(record) for record in flows], next_page_token=page_token(following)
        )

    async def StartFlow(self, request: pb2.StartFlowRequest, context: Context) -> pb2.StartFlowResponse:
        _, start_ms = every(lambda: require_identifiers(flow_id=request.flow_id), lambda: ms_of(request, "start_at"))
        flow = await self.change.start(request.flow_id, start_ms)
        return pb2.StartFlowResponse(flow=flow_mapping.flow(flow))

    async def StopFlow(self, request: pb2.StopFlowRequest, context: Context) -> pb2.StopFlowResponse:
        by, reason = actor_and_reason(request)
        flow = await self.change.stop(request.flow_id, by, reason)
        return pb2.StopFlowResponse(flow=flow_mapping.flow(flow))

    async def PauseFlow(self, request: pb2.PauseFlowRequest, context: Context) -> pb2.PauseFlowResponse:
        by, note = actor_and_reason(request, "note")
        flow = await self.change.pause(request.flow_id, by, note)
        return pb2.PauseFlowResponse(flow=flow_mapping.flow(flow))

    async def ResumeFlow(self, request: pb2.ResumeFlowRequest, context: Context) -> pb2.ResumeFlowResponse:
        require_identifiers(flow_id=request.flow_id)
        return pb2.ResumeFlowResponse(flow=flow_mapping.flow(await self.change.resume(request.flow_id)))

    async def ListFirings(self, request: pb2.ListFiringsRequest, context: Context) -> pb2.ListFiringsResponse:
        before_ms, limit = page_of(request, int, flow_id=request.flow_id)
        if request.backfill_id:
            await self.backfills.get(request.flow_id, request.backfill_id)
        firings, following = await self.schedules.firings(request.flow_id, before_ms or 0, limit, request.backfill_id)
        return pb2.ListFiringsResponse(
            firings=[flow_mapping.firing(line) for line in firings], next_page_token=page_token(following or None)
        )

    async def ListNextExecutions(
        self, request: pb2.ListNextExecutionsRequest, context: Context
    ) -> pb2.ListNextExecutionsResponse:
        _, count = every(lambda: require_identifiers(flow_id=request.flow_id), lambda: _count(request.count))
        flow, planned = await self.schedules.upcoming(request.flow_id, count)
        response = pb2.ListNextExecutionsResponse(status=flow_mapping.FLOW_STATUS[flow.status])
        for planned_ms in planned:
            set_timestamp(response.planned_times.add(), planned_ms)
        if flow.schedule.on:
            response.begins_on = flow.schedule.on.description
        return response

    async def DeleteFlow(self, request: pb2.DeleteFlowRequest, context: Context) -> pb2.DeleteFlowResponse:
        _, wait_s = every(lambda: require_identifiers(flow_id=request.flow_id), lambda: wait_of(request))
        return pb2.DeleteFlowResponse(done=await self.change.delete(request.flow_id, wait_s))

    async def ListCycles(self, request: pb2.ListCyclesRequest, context: Context) -> pb2.ListCyclesResponse:
        (position, limit), statuses, started_after_ms, started_before_ms = every(
            lambda: page_of(request, tuple[int, int], flow_id=request.flow_id),
            lambda: chosen("statuses", request.statuses, cycle_mapping.STATUS_OF_CYCLE),
            lambda: ms_of(request, "started_after"),
            lambda: ms_of(request, "started_before"),
        )
        wanted = CycleFilter(statuses, started_after_ms, started_before_ms)
        below = RunName(request.flow_id, *position) if position else None
        states, following = await self.read.cycles(request.flow_id, wanted, below, limit)
        token = page_token((following.cycle, following.run) if following else None)
        return pb2.ListCyclesResponse(cycles=[cycle_mapping.cycle(state) for state in states], next_page_token=token)

    async def DescribeCycle(self, request: pb2.DescribeCycleRequest, context: Context) -> pb2.DescribeCycleResponse:
        which, page_size = every(lambda: cycle_of(request), lambda: page_size_of(request.page_size or MAX_PAGE_SIZE))
        found = await self.describe(
            *which,
            outputs=request.include_outputs,
            lines=not request.omit_logs,
            page_size=page_size,
            page_token=request.page_token,
        )
        response = pb2.DescribeCycleResponse(
            cycle=cycle_mapping.cycle(found.state),
            flow_status=flow_mapping.FLOW_STATUS[found.flow.status],
            nodes=found.page.node_tasks,
            signals=found.page.signals,
            logs=[cycle_mapping.log_line(line) for line in found.lines],
            next_page_token=found.page.next_page_token,
        )
        if found.statistics is not None:
            response.statistics.CopyFrom(cycle_mapping.statistics(found.statistics))
        return response

    async def WatchFlow(self, request: pb2.WatchFlowRequest, context: Context) -> AsyncIterator[pb2.WatchFlowResponse]:
        if not 1 <= len(request.flow_ids) <= MAX_WATCHED:
            message = f"must name 1 to {MAX_WATCHED} flows, names {len(request.flow_ids)}"
            raise InvalidInput([Violation("flow_ids", message)])
        _, after = every(
            lambda: require_identifiers(
                **{f"flow_ids[{place}]": flow_id for place, flow_id in enumerate(request.flow_ids)}
            ),
            lambda: watch_mapping.last_seen(request),
        )
        cycle = request.cycle if request.HasField("cycle") else None
        async for states in self.watch(list(request.flow_ids), cycle, after):
            await self._require_still_own({state.name.flow_id for state in states})
            yield pb2.WatchFlowResponse(events=[watch_mapping.event(state) for state in states])

    async def ExplainFlow(
        self, request: explanation_pb2.ExplainFlowRequest, context: Context
    ) -> explanation_pb2.ExplainFlowResponse:
        require_identifiers(flow_id=request.flow_id)
        flow, reasons = await self.explain_flow(request.flow_id)
        return explanation_pb2.ExplainFlowResponse(
            status=flow_mapping.FLOW_STATUS[flow.status], reasons=reason_messages(reasons)
        )

    async def ExplainNode(
        self, request: explanation_pb2.ExplainNodeRequest, context: Context
    ) -> explanation_pb2.ExplainNodeResponse:
        _, which = every(lambda: node_or_item(request.node_id), lambda: cycle_of(request))
        found = await self.explain_node(*which, request.node_id)
        return explanation_pb2.ExplainNodeResponse(
            cycle=cycle_mapping.cycle(found.state), node_task=found.node_task, reasons=reason_messages(found.reasons)
        )

    async def RunDoctor(
        self, request: doctor_pb2.RunDoctorRequest, context: Context
    ) -> AsyncIterator[doctor_pb2.RunDoctorResponse]:
        async for answer in doctor_answers(self.doctor, request.mend, doctor_pb2.RunDoctorResponse):
            yield answer

    async def ListLogs(self, request: pb2.ListLogsRequest, context: Context) -> pb2.ListLogsResponse:
        (position, limit), least, _ = every(
            lambda: page_of(request, LogPosition, flow_id=request.flow_id),
            lambda: _level(request.min_level),
            lambda: node_or_item(request.node_id) if request.node_id else None,
        )
        lines, following = await self.logs.page(
            request.flow_id,
            request.cycle if request.HasField("cycle") else None,
            LineFilter(request.node_id, least),
            position,
            limit,
        )
        return pb2.ListLogsResponse(
            lines=[cycle_mapping.log_line(line) for line in lines], next_page_token=page_token(following)
        )


def _count(count: int) -> int:
    if not 0 <= count <= MAX_PAGE_SIZE:
        raise InvalidInput([Violation("count", f"must be 0 to {MAX_PAGE_SIZE}, is {count}")])
    return count or _UPCOMING


def _level(number: Any) -> LogLevel:
    level = cycle_mapping.LEVEL_OF.get(number or cycle_pb2.LOG_LEVEL_DEBUG)
    if level is None:
        raise InvalidInput([Violation("min_level", f"{number} is not a known level")])
    return level
