"""The part of SchedulerService that runs flows: one, many, or a stream of runs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.rpc import cycle_mapping, run_requests, run_results
from tradewind.scheduler.rpc.cycle_handlers import CycleHandlers
from tradewind.scheduler.rpc.run_stream import RunStream
from tradewind.scheduler.use_cases.definitions import PlannedRun
from tradewind.scheduler.use_cases.run_cycles import RunCycles, RunResult
from tradewind.server.access.identity import is_restricted, require_own
from tradewind.server.access.metering import counted_calls
from tradewind.server.errors import ErrorAnswers
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.streams import OpenStreams
from tradewind.server.telemetry import current_traceparent

Context = grpc.aio.ServicerContext[Any, Any]

_OUTPUTS_OF = 100
"""The outputs of so many cycles of a bulk are held at a time."""


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
        (cycle_request,), wait_s = await run_requests.cycle_requests_of(request, [request], traceparent)
        (result,) = await self.run([cycle_request], wait_s)
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
        response = pb2.RunFlowsResponse()
        async with counted_calls("RunFlow", len(request.items)) as counted:
            cycle_requests, wait_s = await run_requests.cycle_requests_of(request, request.items, current_traceparent())

            def add(group: Sequence[RunResult]) -> None:
                run_results.add_results(response, cycle_requests, group, request.request_id)

            results = await self.run(cycle_requests, wait_s, add)
            await counted.refund(sum(bool(each.error_reason) for each in response.results))
        run_results.fit_cycles(response)
        begun = [
            (message, PlannedRun(result.state, result.planned), cycle_request.inputs_json)
            for message, result, cycle_request in zip(response.results, results, cycle_requests, strict=True)
            if result.state is not None and result.planned is not None
        ]
        inputs = [(run.planned, inputs_json) for _, run, inputs_json in begun]
        for place, warnings in await self.unused_inputs.of_many(inputs):
            begun[place][0].warnings.extend(warnings)
        if request.include_outputs:
            await self._add_outputs_of_bulk(response, [(message, run) for message, run, _ in begun])
        return response

    async def _add_outputs_of_bulk(
        self, response: pb2.RunFlowsResponse, begun: Sequence[tuple[pb2.RunFlowResult, PlannedRun]]
    ) -> None:
        """Add to each result of the bulk its outputs, until there is no room left: all others are omitted then."""
        room = run_results.room_for_outputs(response)
        for first in range(0, len(begun), _OUTPUTS_OF):
            chunk = begun[first : first + _OUTPUTS_OF]
            found = await self.outputs([run for _, run in chunk]) if room >= 0 else [[]] * len(chunk)
            for (message, _), outputs in zip(chunk, found, strict=True):
                room = run_results.add_outputs(message, outputs, room)
            await asyncio.sleep(0)
