"""Builds the answer to a bulk of runs as they end: what is left to do after the last one delays the caller."""

from collections.abc import Sequence

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.rpc.cycle_mapping import fill_cycle, leave_out_large_fields
from tradewind.scheduler.rpc.run_results import add_outputs, refusal
from tradewind.scheduler.use_cases.definitions import PlannedRun
from tradewind.scheduler.use_cases.run_cycles import RunResult
from tradewind.scheduler.use_cases.sink_outputs import LARGEST_OUTPUTS, SinkOutputs
from tradewind.scheduler.use_cases.unused_inputs import UnusedInputs

_ANSWER, _CYCLES, _WARNINGS = 4 * 1024 * 1024, 3 * 1024 * 1024, 256 * 1024
"""The most bytes of the answer, and what is kept free in it for cycles, at most, and for warnings."""
_CYCLE = 512
"""Bytes kept free for a cycle, beside what its request holds."""


class BulkAnswer:
    """The answer to RunFlows; `add` takes the results of its runs in groups, in order, then `finish` completes it.

    Outputs are added until there is no room left, and omitted from all further results. Cycles lose their large fields
    when the answer would be too large with them.
    """

    def __init__(self, request: pb2.RunFlowsRequest, outputs: SinkOutputs, unused: UnusedInputs) -> None:
        self.response = pb2.RunFlowsResponse()
        self._request = request
        self._outputs = outputs if request.include_outputs else None
        self._unused = unused
        self._with_inputs: list[tuple[pb2.RunFlowResult, PlannedRun]] = []
        expected = _CYCLE * len(request.items) + request.ByteSize()
        self._room_for_outputs = min(LARGEST_OUTPUTS, _ANSWER - _WARNINGS - min(_CYCLES, expected))

    async def add(self, group: Sequence[RunResult]) -> None:
        """Add the results of the next runs. Raises PeerUnavailable when their outputs cannot be read."""
        results = self.response.results
        messages = [results.add() for _ in group]
        begun: list[tuple[pb2.RunFlowResult, PlannedRun]] = []
        for place, (message, result) in enumerate(zip(messages, group, strict=True), len(results) - len(group)):
            if result.state is not None:
                fill_cycle(message.cycle, result.state)
                if result.planned is not None:
                    begun.append((message, PlannedRun(result.state, result.planned)))
            elif fault := refusal(self._request.items[place].flow_id, result, f"{self._request.request_id}/{place}"):
                message.error_reason = fault.reason
                message.error_message = fault.message
        self._with_inputs += [(message, run) for message, run in begun if run.state.facts.inputs_json]
        if self._outputs is not None:
            room = self._room_for_outputs
            found = await self._outputs([run for _, run in begun]) if room >= 0 else [[]] * len(begun)
            for (message, _), outputs in zip(begun, found, strict=True):
                room = add_outputs(message, outputs, room)
            self._room_for_outputs = room

    async def finish(self) -> pb2.RunFlowsResponse:
        """Return the answer, with warnings about inputs that no node takes."""
        if self.response.ByteSize() > _ANSWER - _WARNINGS:
            for message in self.response.results:
                leave_out_large_fields(message.cycle)
        inputs = [(run.planned, run.state.facts.inputs_json) for _, run in self._with_inputs]
        for place, warnings in await self._unused.of_many(inputs):
            self._with_inputs[place][0].warnings.extend(warnings)
        return self.response
