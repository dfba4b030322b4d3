"""The part of SchedulerService that runs flows: one, many, or a stream of runs."""

from dataclasses import dataclass

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.rpc import cycle_mapping, run_requests, run_results
from tradewind.scheduler.rpc.bulk_answer import BulkAnswer
from tradewind.scheduler.rpc.cycle_handlers import CycleHandlers
from tradewind.scheduler.rpc.run_stream import RunStream
from tradewind.scheduler.use_cases.run_cycles import RunCycles
from tradewind.server.access.identity import is_restricted, require_own
from tradewind.server.access.metering import counted_calls
from tradewind.server.errors import ErrorAnswers
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.interception import Context
from tradewind.server.streams import OpenStreams
from tradewind.server.telemetry import current_traceparent


@dataclass(eq=False, kw_only=True)
class RunHandlers(CycleHandlers):
    """Runs of flows; they are answered like other cycles, with outputs and warnings."""

    run: RunCycles
    streams: OpenStreams
    errors: ErrorAnswers

    async def RunFlow(self, request: pb2.RunFlowRequest, context: Context) -> pb2.RunFlowResponse:
        return await self._run_one(request, current_traceparent())

    async def StreamRuns(self, request_iterator: object, context: Context) -> None:  # type: ignore[override]
        with self.streams.opened():
            await RunStream(self._run_own, self.errors).serve(context)

    async def _run_own(self, request: pb2.RunFlowRequest, traceparent: str) -> pb2.RunFlowResponse:
        if not is_restricted():
            return await self._run_one(request, traceparent)
        require_own(await self.read.owners([request.flow_id]))
        async with counted_calls("RunFlow"):
            return await self._run_one(request, traceparent)

    async def _run_one(self, request: pb2.RunFlowRequest, traceparent: str) -> pb2.RunFlowResponse:
        cycle_requests, wait_s = await run_requests.cycle_requests_of(request, [request], traceparent)
        (result,) = await self.run(cycle_requests, wait_s)
        if result.outcome is BeginOutcome.NOT_FOUND:
            raise await self.read.not_found(request.flow_id)
        fault = run_results.refusal(request.flow_id, result, request.request_id)
        if fault is not None:
            raise fault
        response = pb2.RunFlowResponse()
        if result.state is not None:
            cycle_mapping.fill_cycle(response.cycle, result.state)
            if request.include_outputs:
                await self._add_outputs(response, result.state, result.planned)
        if result.planned is not None:
            response.warnings.extend(await self.unused_inputs(result.planned, request.inputs_json))
        return response

    async def RunFlows(self, request: pb2.RunFlowsRequest, context: Context) -> pb2.RunFlowsResponse:
        if len(request.items) > run_requests.MAX_ITEMS:
            message = f"{len(request.items)} items; at most {run_requests.MAX_ITEMS}: send several requests"
            raise InvalidInput([Violation("items", message)])
        async with counted_calls("RunFlow", len(request.items)) as counted:
            cycle_requests, wait_s = await run_requests.cycle_requests_of(request, request.items, current_traceparent())
            answer = BulkAnswer(request, self.outputs, self.unused_inputs)
            results = await self.run(cycle_requests, wait_s, answer.add)
            await counted.refund(sum(result.state is None for result in results))
        return await answer.finish()
