"""How a client stops cycles and runs them again."""

from collections.abc import Iterable

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.api.scheduler.v1 import stop_pb2
from tradewind.client.calls import new_request_id
from tradewind.client.connection import Connection
from tradewind.client.cycles import CycleRecord, cycle_from
from tradewind.client.flow_calls import Inputs
from tradewind.client.messages import build
from tradewind.client.node_tasks import NodeTaskRecord, node_task_from
from tradewind.client.started import Started
from tradewind.client.wire import Seconds, as_list, duration, object_json, seconds_of


class RerunCalls:
    """Stops and reruns."""

    _connection: Connection
    _user_id: str

    async def stop_cycle(
        self, flow_id: str, cycle: int | None = None, run: int | None = None, *, reason: str = ""
    ) -> CycleRecord:
        """Ask the running nodes of a cycle, the latest if None, to stop, and skip waiting ones.

        Raises NotFound, WrongStatus for a cycle that has ended.
        """
        request = build(
            stop_pb2.StopCycleRequest,
            flow_id=flow_id,
            cycle=cycle,
            run=run,
            reason=reason,
            by=self._user_id,
            request_id=new_request_id(),
        )
        answer = await self._connection.to_scheduler.call(self._connection.scheduler.StopCycle, request)
        return cycle_from(answer.cycle)

    async def stop_component(
        self, flow_id: str, component_id: str, cycle: int | None = None, run: int | None = None, *, reason: str = ""
    ) -> CycleRecord:
        """Stop one component of a cycle; the others go on.

        Raises what `stop_cycle` does, and InvalidInput for an unknown component.
        """
        request = build(
            stop_pb2.StopComponentRequest,
            flow_id=flow_id,
            cycle=cycle,
            run=run,
            component_id=component_id,
            reason=reason,
            by=self._user_id,
        )
        answer = await self._connection.to_scheduler.call(self._connection.scheduler.StopComponent, request)
        return cycle_from(answer.cycle)

    async def stop_node(
        self, flow_id: str, node_id: str, cycle: int | None = None, run: int | None = None, *, reason: str = ""
    ) -> NodeTaskRecord:
        """Stop one node of a cycle; nodes downstream follow their `run_if`. Raises what `stop_cycle` does."""
        request = build(
            stop_pb2.StopNodeRequest,
            flow_id=flow_id,
            cycle=cycle,
            run=run,
            node_id=node_id,
            reason=reason,
            by=self._user_id,
        )
        answer = await self._connection.to_scheduler.call(self._connection.scheduler.StopNode, request)
        return node_task_from(answer.node)

    async def _start_rerun(
        self,
        flow_id: str,
        cycle: int | None,
        from_nodes: Iterable[str],
        inputs: Inputs | None,
        *,
        reason: str,
        wait: Seconds,
        request_id: str | None,
    ) -> Started:
        """Run a cycle again, for Client.rerun_cycle."""
        seconds, calls = seconds_of(wait), self._connection.to_scheduler
        request = build(
            pb.RerunCycleRequest,
            flow_id=flow_id,
            cycle=cycle,
            from_node_ids=as_list(from_nodes),
            inputs_json=object_json(inputs, "inputs"),
            wait=duration(seconds),
            include_outputs=seconds > 0,
            by=self._user_id,
            reason=reason,
            **calls.request_id_fields(request_id, seconds),
        )
        answer = await calls.call(self._connection.scheduler.RerunCycle, request, extra=seconds)
        return Started(answer, with_outputs=request.include_outputs)
