"""The part of SchedulerService for single cycles: waiting for them, running them again, stopping them."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2_grpc as pb2_grpc
from tradewind.api.scheduler.v1 import stop_pb2
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.rpc import cycle_mapping, run_requests, run_results
from tradewind.scheduler.rpc.checks import actor_and_reason, text
from tradewind.scheduler.use_cases.await_ends import AwaitEnds
from tradewind.scheduler.use_cases.definitions import Definitions, PlannedFlow, PlannedRun
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.scheduler.use_cases.rerun_cycle import RerunCycle, RerunOptions
from tradewind.scheduler.use_cases.sink_outputs import SinkOutputs
from tradewind.scheduler.use_cases.stop_cycle import StopCycle
from tradewind.scheduler.use_cases.unused_inputs import UnusedInputs
from tradewind.server.access.identity import is_restricted, request_owner, require_own
from tradewind.server.all_faults import every
from tradewind.server.identifiers import require_identifiers
from tradewind.server.interception import Context
from tradewind.server.telemetry import current_traceparent

_NO_REASON = "no reason was given"


@dataclass(eq=False, kw_only=True)
class CycleHandlers(pb2_grpc.SchedulerServiceServicer):
    """Ends, reruns and stops."""

    read: ReadFlows
    await_ends: AwaitEnds
    definitions: Definitions
    outputs: SinkOutputs
    unused_inputs: UnusedInputs
    rerun: RerunCycle
    stop_cycle: StopCycle

    async def GetCycle(self, request: pb2.GetCycleRequest, context: Context) -> pb2.GetCycleResponse:
        wait_s, which = every(lambda: run_requests.wait_of(request), lambda: cycle_of(request))
        state = await self.read.cycle(*which)
        if wait_s > 0:
            state = await self.await_ends.end_of(state, wait_s)
            await self._require_still_own({request.flow_id})
        response = pb2.GetCycleResponse(cycle=cycle_mapping.cycle(state))
        if request.include_outputs:
            await self._add_outputs(response, state, await self.definitions.of_run(state))
        return response

    async def RerunCycle(self, request: pb2.RerunCycleRequest, context: Context) -> pb2.RerunCycleResponse:
        wait_s, options = every(lambda: run_requests.wait_of(request), lambda: _rerun_options(request))
        reran = await self.rerun(options, wait_s)
        response = pb2.RerunCycleResponse(cycle=cycle_mapping.cycle(reran.state))
        if request.include_outputs:
            await self._add_outputs(response, reran.state, reran.planned)
        if reran.planned is not None:
            response.warnings.extend(await self.unused_inputs(reran.planned, request.inputs_json))
        return response

    async def _require_still_own(self, flow_ids: Collection[str]) -> None:
        """Refuse to go on with a call whose flows have changed hands since it was let in. Raises PermissionDenied."""
        if is_restricted():
            require_own(await self.read.owners(flow_ids))

    async def _add_outputs(
        self, response: run_results.WithOutputs, state: ChainState, planned: PlannedFlow | None
    ) -> None:
        if planned is not None:
            (outputs,) = await self.outputs([PlannedRun(state, planned)])
            run_results.add_outputs(response, outputs)

    async def StopCycle(self, request: stop_pb2.StopCycleRequest, context: Context) -> stop_pb2.StopCycleResponse:
        actor_reason, request_id = every(
            lambda: _actor_and_reason(request), lambda: text("request_id", request.request_id, 128)
        )
        state = await self.stop_cycle(*_cycle_reference(request), *actor_reason, request_id=request_id)
        return stop_pb2.StopCycleResponse(cycle=cycle_mapping.cycle(state))

    async def StopComponent(
        self, request: stop_pb2.StopComponentRequest, context: Context
    ) -> stop_pb2.StopComponentResponse:
        actor_reason = _actor_and_reason(request)
        state = await self.stop_cycle.component(*_cycle_reference(request), request.component_id, *actor_reason)
        return stop_pb2.StopComponentResponse(cycle=cycle_mapping.cycle(state))

    async def StopNode(self, request: stop_pb2.StopNodeRequest, context: Context) -> stop_pb2.StopNodeResponse:
        actor_reason = _actor_and_reason(request, node_id=request.node_id)
        node = await self.stop_cycle.node(*_cycle_reference(request), request.node_id, *actor_reason)
        return stop_pb2.StopNodeResponse(node=node)


def cycle_of(request: Any) -> tuple[str, int | None, int | None]:
    """Return the flow, cycle and run that a request names, None for the latest. Raises InvalidInput."""
    require_identifiers(flow_id=request.flow_id)
    return _cycle_reference(request)


def _cycle_reference(request: Any) -> tuple[str, int | None, int | None]:
    """Do the same as `cycle_of`, for a request whose identifiers have been checked."""
    cycle = request.cycle if request.HasField("cycle") else None
    run = request.run if request.HasField("run") else None
    return request.flow_id, cycle, run


def _actor_and_reason(request: Any, **named: str) -> tuple[str, str]:
    """Return who makes a request and why. Raises InvalidInput with every fault of these and of the identifiers."""
    by, reason = actor_and_reason(request, **named)
    return by, reason or _NO_REASON


def _rerun_options(request: pb2.RerunCycleRequest) -> RerunOptions:
    (by, reason), lifetime_ms, _ = every(
        lambda: actor_and_reason(request),
        lambda: run_requests.lifetime_of(request),
        lambda: run_requests.check_inputs(request.inputs_json, request.request_id),
    )
    flow_id, cycle, run = _cycle_reference(request)
    remembered = None
    if request.request_id:
        arguments = "\n".join((flow_id, str(cycle), str(run), request.inputs_json, *request.from_node_ids))
        payload = hashlib.sha256(arguments.encode()).hexdigest()[:32]
        remembered = RememberedRequest(request_owner(), flow_id, request.request_id, payload, lifetime_ms)
    return RerunOptions(
        flow_id,
        cycle,
        run,
        tuple(dict.fromkeys(request.from_node_ids)),
        request.inputs_json,
        by,
        reason,
        remembered,
        current_traceparent(),
    )
