"""A scheduler that does as the test tells it."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf import timestamp_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2

from tests.unit.client.refusal import AWAY, Context, Refusal, RunContext, RunRefused
from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2, job_pb2, scheduler_service_pb2_grpc
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb

START = 1_900_000_000
"""The start of the first cycle, in epoch seconds."""

FLOW: dict[str, Any] = {
    "interval": "5m",
    "nodes": [{"id": "feed", "type": "feed"}, {"id": "model", "type": "model"}],
    "edges": [{"source": "feed", "source_handle": "prices", "target": "model", "target_handle": "prices"}],
}
STRUCTURE = flow_pb2.FlowStructure(
    component_count=1,
    components={
        "0": flow_pb2.ComponentStructure(nodes=["feed", "model"], entry_nodes=["feed"], node_count=2, is_dag=True)
    },
)


@dataclass
class Ending:
    """How cycles end: their status, and how each node of `feed -> model` ended."""

    status: str = "COMPLETED"
    model: str = "COMPLETED"
    outputs: dict[str, Any] = field(default_factory=lambda: {"forecast": 7})
    result_json: str = ""


class FakeScheduler(scheduler_service_pb2_grpc.SchedulerServiceServicer):
    """Keeps what it is given. Cycles end as `ending` says or, while that is None, when `end` is called."""

    def __init__(self) -> None:
        self.flows: dict[str, flow_pb2.Flow] = {}
        self.cycles: dict[str, list[cycle_pb2.Cycle]] = {}
        self.endings: dict[tuple[str, int], Ending] = {}
        self.warnings: list[str] = []
        self.lines: list[cycle_pb2.LogLine] = []
        self.ending: Ending | None = Ending()
        self.requests: list[Message] = []
        self.refusals: deque[Refusal | None] = deque()
        self.lost_answers = 0
        self.streams = 0
        self.mute = False
        self.reason = ""
        self.page_size = 1000
        self.violations: list[flow_pb2.Violation] = []
        self.oddities: list[flow_pb2.Violation] = []
        """The oddities that are reported about an analyzed definition."""
        self.job = job_pb2.BulkJob(job_id="job-1", action=job_pb2.BULK_ACTION_STOP, matched=3, done=1)
        """The state of any job that is asked for."""
        self._watchers: set[asyncio.Queue[pb.WatchFlowResponse | Refusal | None]] = set()
        self._changed = asyncio.Condition()
        self._writing = asyncio.Lock()
        self._soon: tuple[str, int, float] | None = None
        self._ending_soon: asyncio.Task[None] | None = None

    def last(self, kind: type[Message]) -> Any:
        """Return the latest request of a kind."""
        return next(request for request in reversed(self.requests) if isinstance(request, kind))

    def count(self, kind: type[Message]) -> int:
        """Return how many requests of a kind came."""
        return sum(isinstance(request, kind) for request in self.requests)

    def add_flow(self, flow_id: str, config: dict[str, Any] | None = None, **fields: Any) -> flow_pb2.Flow:
        """Add a flow."""
        flow = self.flows[flow_id] = flow_pb2.Flow(
            flow_id=flow_id,
            user_id="default",
            status=fields.pop("status", flow_pb2.FLOW_STATUS_REGISTERED),
            config_json=json.dumps(config or FLOW),
            structure=STRUCTURE,
            last_cycle=-1,
            revision=1,
            created_at=timestamp_pb2.Timestamp(seconds=START),
            **fields,
        )
        self.cycles[flow_id] = []
        return flow

    async def begin(self, flow_id: str, inputs_json: str = "") -> cycle_pb2.Cycle:
        """Begin a cycle."""
        cycles = self.cycles[flow_id]
        cycle = cycle_pb2.Cycle(
            flow_id=flow_id,
            cycle=len(cycles),
            run_id=f"r{len(cycles)}",
            status=cycle_pb2.CYCLE_STATUS_RUNNING,
            start_time=timestamp_pb2.Timestamp(seconds=START + len(cycles)),
            revision=1,
            origin=cycle_pb2.CYCLE_ORIGIN_RUN_FLOW,
            inputs_json=inputs_json,
            reason=self.reason,
            node_count=2,
            version=1,
        )
        cycles.append(cycle)
        self.flows[flow_id].last_cycle = cycle.cycle
        await self.publish(cycle)
        return cycle

    async def end(self, flow_id: str, cycle: int, ending: Ending | None = None) -> None:
        """End a cycle."""
        how = ending or Ending()
        self.endings[flow_id, cycle] = how
        record = self.cycles[flow_id][cycle]
        record.status = cycle_pb2.CycleStatus.Value(f"CYCLE_STATUS_{how.status}")
        record.version += 1
        record.result_json = how.result_json
        record.end_time.FromMilliseconds((START + cycle) * 1000 + 250)
        failed = how.model == "FAILED"
        record.counts.CopyFrom(node_task_pb2.StatusCounts(completed=1 if failed else 2, failed=int(failed)))
        await self.publish(record)

    def end_soon(self, flow_id: str, cycle: int, after: float = 0.2) -> None:
        """End a cycle some time after somebody has begun to watch; may be called from any thread."""
        self._soon = (flow_id, cycle, after)

    async def _end_soon(self) -> None:
        if self._soon is not None:
            (flow_id, cycle, after), self._soon = self._soon, None
            await asyncio.sleep(after)
            await self.end(flow_id, cycle)

    async def break_watches(self, refusal: Refusal | None = AWAY) -> None:
        """Break every watch, or end it without an error."""
        for watcher in self._watchers:
            await watcher.put(refusal)

    async def publish(self, cycle: cycle_pb2.Cycle) -> None:
        """Send the state of a cycle to every watcher."""
        event = _event(cycle)
        for watcher in self._watchers:
            await watcher.put(pb.WatchFlowResponse(events=[event]))
        async with self._changed:
            self._changed.notify_all()

    async def _record_request(self, request: Message, context: Context) -> None:
        self.requests.append(request)
        refusal = self.refusals.popleft() if self.refusals else None
        if refusal is not None:
            await refusal.abort_call(context)

    async def _lose_answer(self, context: Context) -> None:
        """Lose the answer, though the work is done, as many times as the test asks."""
        if self.lost_answers:
            self.lost_answers -= 1
            await AWAY.abort_call(context)

    async def _flow(self, flow_id: str, context: Context) -> flow_pb2.Flow:
        if flow_id not in self.flows:
            refusal = Refusal(
                grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND", f'no flow "{flow_id}"', metadata={"flow_id": flow_id}
            )
            await refusal.abort_call(context)
        return self.flows[flow_id]

    async def _cycle(self, request: Any, context: Context) -> cycle_pb2.Cycle:
        await self._flow(request.flow_id, context)
        cycles = self.cycles[request.flow_id]
        number = request.cycle if request.HasField("cycle") else len(cycles) - 1
        if not 0 <= number < len(cycles):
            await self._cycle_gone(request.flow_id, number, context)
        if request.run != cycles[number].run and request.HasField("run"):
            message = f"cycle {number} of {request.flow_id} has no run {request.run}"
            await Refusal(grpc.StatusCode.NOT_FOUND, "CYCLE_NOT_FOUND", message).abort_call(context)
        return cycles[number]

    async def _cycle_gone(self, flow_id: str, number: int, context: Context) -> None:
        message = f"{flow_id} has no cycle {number}"
        await Refusal(grpc.StatusCode.NOT_FOUND, "CYCLE_NOT_FOUND", message).abort_call(context)

    async def AnalyzeFlow(self, request: pb.AnalyzeFlowRequest, context: Context) -> pb.AnalyzeFlowResponse:
        await self._record_request(request, context)
        return pb.AnalyzeFlowResponse(structure=STRUCTURE, violations=self.violations, warnings=self.oddities)

    async def RegisterFlow(self, request: pb.RegisterFlowRequest, context: Context) -> pb.RegisterFlowResponse:
        await self._record_request(request, context)
        if self.violations:
            bad = error_details_pb2.BadRequest(
                field_violations=[
                    error_details_pb2.BadRequest.FieldViolation(field=each.path, description=each.message)
                    for each in self.violations
                ]
            )
            await Refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT", "faults", [bad]).abort_call(context)
        config = json.loads(request.weather_json)
        changed = request.flow_id not in self.flows
        flow = self.add_flow(request.flow_id, config, labels=dict(request.labels)) if changed else None
        await self._lose_answer(context)
        warning = flow_pb2.Violation(path="nodes[0].type", message='no live worker offers "feed"')
        return pb.RegisterFlowResponse(
            flow=flow or self.flows[request.flow_id], changed=changed, warnings=[warning] if changed else []
        )

    async def GetFlow(self, request: pb.GetFlowRequest, context: Context) -> pb.GetFlowResponse:
        await self._record_request(request, context)
        flow = await self._flow(request.flow_id, context)
        cycles = self.cycles[request.flow_id]
        return pb.GetFlowResponse(flow=flow, current_cycle=cycles[-1] if cycles else None)

    async def ListNextExecutions(
        self, request: pb.ListNextExecutionsRequest, context: Context
    ) -> pb.ListNextExecutionsResponse:
        await self._record_request(request, context)
        moments = [timestamp_pb2.Timestamp(seconds=1_900_000_000 + 60 * number) for number in range(request.count)]
        return pb.ListNextExecutionsResponse(planned_times=moments)

    async def ListFirings(self, request: pb.ListFiringsRequest, context: Context) -> pb.ListFiringsResponse:
        await self._record_request(request, context)
        fired = flow_pb2.Firing(
            planned_time=timestamp_pb2.Timestamp(seconds=1_900_000_000),
            outcome=flow_pb2.FIRING_OUTCOME_FIRED,
            cycle=0,
            count=1,
        )
        return pb.ListFiringsResponse(firings=[fired])

    async def ListFlows(self, request: pb.ListFlowsRequest, context: Context) -> pb.ListFlowsResponse:
        await self._record_request(request, context)
        flows = [
            flow
            for flow_id, flow in sorted(self.flows.items())
            if flow_id > request.page_token
            and (not request.statuses or flow.status in request.statuses)
            and all(flow.labels.get(key) == value for key, value in request.labels.items())
        ]
        page = flows[: min(request.page_size, self.page_size)]
        return pb.ListFlowsResponse(flows=page, next_page_token=page[-1].flow_id if len(flows) > len(page) else "")

    async def StartFlow(self, request: pb.StartFlowRequest, context: Context) -> pb.StartFlowResponse:
        await self._record_request(request, context)
        flow = await self._flow(request.flow_id, context)
        flow.status = flow_pb2.FLOW_STATUS_RUNNING
        if request.HasField("start_at"):
            flow.next_execution.CopyFrom(request.start_at)
        return pb.StartFlowResponse(flow=flow)

    async def StopFlow(self, request: pb.StopFlowRequest, context: Context) -> pb.StopFlowResponse:
        await self._record_request(request, context)
        flow = await self._flow(request.flow_id, context)
        flow.status = flow_pb2.FLOW_STATUS_STOPPED
        return pb.StopFlowResponse(flow=flow)

    async def DeleteFlow(self, request: pb.DeleteFlowRequest, context: Context) -> pb.DeleteFlowResponse:
        await self._record_request(request, context)
        await self._flow(request.flow_id, context)
        del self.flows[request.flow_id], self.cycles[request.flow_id]
        await self._lose_answer(context)
        return pb.DeleteFlowResponse(done=request.HasField("wait"))

    async def RunFlow(self, request: pb.RunFlowRequest, context: Context) -> pb.RunFlowResponse:
        await self._record_request(request, context)
        await self._flow(request.flow_id, context)
        cycle = await self.begin(request.flow_id, request.inputs_json)
        await self._lose_answer(context)
        if self.ending is not None:
            await self.end(cycle.flow_id, cycle.cycle, self.ending)
        if request.HasField("wait"):
            await self._until_ended(cycle, request.wait.ToMilliseconds() / 1000)
        answer = pb.RunFlowResponse(cycle=cycle, warnings=self.warnings)
        self._add_outputs(answer, request.include_outputs)
        return answer

    def _add_outputs(self, answer: pb.RunFlowResponse | pb.GetCycleResponse, wanted: bool) -> None:
        cycle = answer.cycle
        if wanted and (cycle.flow_id, cycle.cycle) in self.endings:
            answer.outputs.append(pb.NodeOutputs(node_id="model", outputs=self._nodes(cycle, outputs=True)[1].outputs))

    async def StreamRuns(self, request_iterator: AsyncIterator[pb.StreamRunsRequest], context: Context) -> None:  # type: ignore[override]
        self.streams += 1
        async with asyncio.TaskGroup() as runs:
            async for request in request_iterator:
                for run in request.runs:
                    runs.create_task(self._streamed(run, context))

    async def _streamed(self, run: pb.StreamedRun, context: Context) -> None:
        answer = pb.StreamedRunAnswer(number=run.number)
        try:
            answer.response.CopyFrom(await self.RunFlow(run.request, RunContext(context)))  # type: ignore[arg-type]
        except RunRefused as error:
            answer.error_status = error.status
        if not self.mute:
            async with self._writing:
                await context.write(pb.StreamRunsResponse(answers=[answer]))

    async def _until_ended(self, cycle: cycle_pb2.Cycle, timeout: float) -> None:
        async with self._changed:
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait_for(lambda: cycle.status != cycle_pb2.CYCLE_STATUS_RUNNING)
            except TimeoutError:
                return

    async def RunFlows(self, request: pb.RunFlowsRequest, context: Context) -> pb.RunFlowsResponse:
        await self._record_request(request, context)
        answer = pb.RunFlowsResponse()
        for item in request.items:
            if item.flow_id in self.flows:
                cycle = await self.begin(item.flow_id, item.inputs_json)
                if self.ending is not None:
                    await self.end(cycle.flow_id, cycle.cycle, self.ending)
                answer.results.add(cycle=cycle)
            else:
                answer.results.add(error_reason="FLOW_NOT_FOUND", error_message=f'no flow "{item.flow_id}"')
        return answer

    async def GetCycle(self, request: pb.GetCycleRequest, context: Context) -> pb.GetCycleResponse:
        await self._record_request(request, context)
        cycle = await self._cycle(request, context)
        await self._until_ended(cycle, request.wait.ToMilliseconds() / 1000)
        answer = pb.GetCycleResponse(cycle=cycle)
        self._add_outputs(answer, request.include_outputs)
        return answer

    async def ListCycles(self, request: pb.ListCyclesRequest, context: Context) -> pb.ListCyclesResponse:
        await self._record_request(request, context)
        await self._flow(request.flow_id, context)
        cycles = [
            cycle
            for cycle in reversed(self.cycles[request.flow_id])
            if (not request.page_token or cycle.cycle < int(request.page_token))
            and (not request.statuses or cycle.status in request.statuses)
            and (
                not request.HasField("started_after")
                or cycle.start_time.ToNanoseconds() >= request.started_after.ToNanoseconds()
            )
            and (
                not request.HasField("started_before")
                or cycle.start_time.ToNanoseconds() < request.started_before.ToNanoseconds()
            )
        ]
        page = cycles[: min(request.page_size, self.page_size)]
        return pb.ListCyclesResponse(
            cycles=page, next_page_token=str(page[-1].cycle) if len(cycles) > len(page) else ""
        )

    async def DescribeCycle(self, request: pb.DescribeCycleRequest, context: Context) -> pb.DescribeCycleResponse:
        await self._record_request(request, context)
        cycle = await self._cycle(request, context)
        nodes = self._nodes(cycle, request.include_outputs)
        signal = node_task_pb2.Signal(
            source="feed",
            source_handle="prices",
            target="model",
            target_handle="prices",
            status=node_task_pb2.SIGNAL_STATUS_LIVE,
        )
        if request.page_token:
            return pb.DescribeCycleResponse(cycle=cycle, nodes=nodes[1:], signals=[signal])
        return pb.DescribeCycleResponse(
            cycle=cycle,
            flow_status=self.flows[request.flow_id].status,
            nodes=nodes[:1],
            logs=[] if request.omit_logs else self.lines,
            statistics=cycle_pb2.CycleStatistics(total_nodes=2, completed_nodes=cycle.counts.completed),
            next_page_token="2",
        )

    def _nodes(self, cycle: cycle_pb2.Cycle, outputs: bool) -> list[node_task_pb2.NodeTask]:
        ending = self.endings.get((cycle.flow_id, cycle.cycle))
        nodes = []
        for node_id in ("feed", "model"):
            node = node_task_pb2.NodeTask(
                node_task_id=f"{cycle.flow_id}:{cycle.cycle}:0:{node_id}",
                flow_id=cycle.flow_id,
                cycle=cycle.cycle,
                node_id=node_id,
                node_type=node_id,
                component_id="0",
                attempt=1,
                status=node_task_pb2.NODE_TASK_STATUS_PENDING,
            )
            if ending is not None:
                how = ending.model if node_id == "model" else "COMPLETED"
                node.status = node_task_pb2.NodeTaskStatus.Value(f"NODE_TASK_STATUS_{how}")
                if how == "FAILED":
                    node.error.code = "NODE_ERROR"
                    node.error.type = "ValueError"
                    node.error.message = "no prices"
                values = ending.outputs if node_id == "model" else {"prices": [1, 2]}
                if outputs and how == "COMPLETED":
                    node.outputs.extend(
                        node_task_pb2.Output(handle=handle, value_json=json.dumps(value))
                        for handle, value in values.items()
                    )
            nodes.append(node)
        return nodes

    async def WatchFlow(self, request: pb.WatchFlowRequest, context: Context) -> AsyncIterator[pb.WatchFlowResponse]:
        await self._record_request(request, context)
        watcher: asyncio.Queue[pb.WatchFlowResponse | Refusal | None] = asyncio.Queue()
        for flow_id in request.flow_ids:
            await self._flow(flow_id, context)
            cycles = self.cycles[flow_id]
            if request.HasField("cycle") and len(cycles) <= request.cycle <= self.flows[flow_id].last_cycle:
                await self._cycle_gone(flow_id, request.cycle, context)
            shown = cycles[request.cycle : request.cycle + 1] if request.HasField("cycle") else cycles[-1:]
            for event_id in request.after_event_ids:
                if event_id.startswith(f"{flow_id}:"):
                    shown = cycles[int(event_id.split(":")[1]) :]
            if events := [_event(cycle) for cycle in shown if _event(cycle).event_id not in request.after_event_ids]:
                await watcher.put(pb.WatchFlowResponse(events=events))
        self._watchers.add(watcher)
        self._ending_soon = asyncio.create_task(self._end_soon())
        try:
            while True:
                event = await watcher.get()
                if isinstance(event, Refusal):
                    await event.abort_call(context)
                if not isinstance(event, pb.WatchFlowResponse):
                    return
                yield event
        finally:
            self._watchers.discard(watcher)

    @property
    def watchers(self) -> int:
        """The number of watchers."""
        return len(self._watchers)

    async def StartBulkJob(
        self, request: job_pb2.StartBulkJobRequest, context: Context
    ) -> job_pb2.StartBulkJobResponse:
        await self._record_request(request, context)
        return job_pb2.StartBulkJobResponse(job=job_pb2.BulkJob(job_id="job-1", status=job_pb2.BULK_JOB_STATUS_RUNNING))

    async def GetBulkJob(self, request: job_pb2.GetBulkJobRequest, context: Context) -> job_pb2.GetBulkJobResponse:
        await self._record_request(request, context)
        return job_pb2.GetBulkJobResponse(job=self.job)

    async def ListLogs(self, request: pb.ListLogsRequest, context: Context) -> pb.ListLogsResponse:
        await self._record_request(request, context)
        await self._flow(request.flow_id, context)
        lines = [
            line
            for line in self.lines
            if line.flow_id == request.flow_id
            and line.level >= request.min_level
            and (not request.HasField("cycle") or line.cycle == request.cycle)
            and (not request.node_id or line.node_id == request.node_id)
            and (request.HasField("cycle") or line.cycle > self.flows[request.flow_id].last_cycle - 5)
        ]
        first = int(request.page_token or 0)
        page = lines[first : first + self.page_size]
        after = first + len(page)
        return pb.ListLogsResponse(lines=page, next_page_token=str(after) if len(lines) > after else "")

    def log(self, flow_id: str, message: str, cycle: int = 0, node_id: str = "", level: str = "INFO") -> None:
        """Add a log line."""
        self.lines.append(
            cycle_pb2.LogLine(
                log_id=str(len(self.lines)),
                flow_id=flow_id,
                cycle=cycle,
                node_id=node_id,
                level=cycle_pb2.LogLevel.Value(f"LOG_LEVEL_{level}"),
                source=cycle_pb2.LOG_SOURCE_NODE if node_id else cycle_pb2.LOG_SOURCE_SCHEDULER,
                message=message,
                created_at=timestamp_pb2.Timestamp(seconds=START + len(self.lines)),
            )
        )


def _event(cycle: cycle_pb2.Cycle) -> cycle_pb2.CycleEvent:
    event_id = f"{cycle.flow_id}:{cycle.cycle}:{cycle.run}-{cycle.version}"
    return cycle_pb2.CycleEvent(event_id=event_id, cycle=cycle)
