"""The answer to a call that ran a cycle or waited for one."""

from collections.abc import Mapping
from typing import Any

from tradewind.api.scheduler.v1 import cycle_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client import json_text
from tradewind.client.cycles import CycleRecord, cycle_from


class Started:
    """A cycle that was run or waited for; its record and outputs are read from the answer only when asked for."""

    __slots__ = ("_answer", "_with_outputs")

    def __init__(
        self,
        answer: pb.RunFlowResponse | pb.RunFlowResult | pb.RerunCycleResponse | pb.GetCycleResponse,
        *,
        with_outputs: bool,
    ) -> None:
        self._answer = answer
        self._with_outputs = with_outputs

    @property
    def message(self) -> cycle_pb2.Cycle:
        """The cycle, as a message."""
        return self._answer.cycle

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings about the run."""
        return () if isinstance(self._answer, pb.GetCycleResponse) else tuple(self._answer.warnings)

    def record(self) -> CycleRecord:
        """Read the cycle."""
        return cycle_from(self._answer.cycle)

    def outputs(self) -> Mapping[str, Mapping[str, Any]] | None:
        """Read what the flow's sink nodes emitted, by node and handle.

        None when the cycle is not known to have completed, or emitted more than fits into an answer.
        """
        answer = self._answer
        if not self._with_outputs or answer.outputs_omitted:
            return None
        if answer.cycle.status != cycle_pb2.CYCLE_STATUS_COMPLETED:
            return None
        # Slices, because a loop over a message's own field costs an IndexError at the end.
        return {
            node.node_id: {output.handle: json_text.decode(output.value_json) for output in node.outputs[:]}
            for node in answer.outputs[:]
        }
