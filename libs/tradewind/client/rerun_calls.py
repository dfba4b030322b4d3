"""How a client stops cycles and runs them again."""

from collections.abc import Iterable

from tradewind.api.scheduler.v1 import cycle_pb2, stop_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client.calls import new_request_id
from tradewind.client.cycles import CycleRecord, cycle_from
from tradewind.client.errors import WrongStatus
from tradewind.client.flow_calls import Inputs
from tradewind.client.messages import build
from tradewind.client.node_task_calls import NodeTaskCalls
from tradewind.client.node_tasks import NodeTaskRecord, node_task_from
from tradewind.client.started import Started
from tradewind.client.wire import Seconds, as_list, duration, object_json, seconds_of


class RerunCalls(NodeTaskCalls):
    """Stops and reruns."""

    async def stop_cycle(
        self, flow_id: str, cycle: int | None = None, run: int | None = None, *, reason: str = ""
    ) -> CycleRecord:
        """Ask the running nodes of a cycle, the latest if None, to stop, and skip waiting ones.

        Raises NotFound, WrongStatus for a cycle that has ended.
        """
        found = await self._find(flow_id, cycle, run)
        request = build(
            stop_pb2.StopCycleRequest,
            flow_id=flow_id,
            cycle=found.cycle,
            run=found.run,
            reason=reason,
            by=self._user_id,
            request_id=new_request_id(),
        )
        answer = await self._connection.call_or_done(self._connection.scheduler.StopCycle, request, WrongStatus)
        return cycle_from(answer.cycle if answer else await self._find(flow_id, found.cycle, found.run))

    async def stop_component(
        self, flow_id: str, component_id: str, cycle: int | None = None, run: int | None = None, *, reason: str = ""
    ) -> CycleRecord:
        """Stop one component of a cycle; the others go on.

        Raises what `stop_cycle` does, and InvalidInput for an unknown component.
        """
        found = await self._find(flow_id, cycle, run)
        request = build(
            stop_pb2.StopComponentRequest,
            flow_id=flow_id,
            cycle=found.cycle,
            run=found.run,
            component_id=component_id,
            reason=reason,
            by=self._user_id,
        )
        answer = await self._connection.call_or_done(self._connection.scheduler.StopComponent, request, WrongStatus)
        return cycle_from(answer.cycle if answer else await self._find(flow_id, found.cycle, found.run))

    async def stop_node(
        self, flow_id: str, node_id: str, cycle: int | None = None, run: int | None = None, *, reason: str = ""
    ) -> NodeTaskRecord:
        """Stop one node of a cycle; nodes downstream follow their `run_if`. Raises what `stop_cycle` does."""
        found = await self._find(flow_id, cycle, run)
        request = build(
            stop_pb2.StopNodeRequest,
            flow_id=flow_id,
            cycle=found.cycle,
            run=found.run,
            node_id=node_id,
            reason=reason,
            by=self._user_id,
        )
        answer = await self._connection.call_or_done(self._connection.scheduler.StopNode, request, WrongStatus)
        if answer is not None:
            return node_task_from(answer.node)
        return await self.get_node_task(f"{flow_id}:{found.cycle}:{found.run}:{node_id}", include_outputs=False)

    async def _find(self, flow_id: str, cycle: int | None, run: int | None) -> cycle_pb2.Cycle:
        """Return a cycle, so that every attempt of a call has its number: the latest may be another one by then."""
        request = build(pb.GetCycleRequest, flow_id=flow_id, cycle=cycle, run=run)
        return (await self._connection.call(self._connection.scheduler.GetCycle, request)).cycle

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
        seconds, connection = seconds_of(wait), self._connection
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
            **connection.request_id_fields(request_id, seconds),
        )
        answer = await connection.call(connection.scheduler.RerunCycle, request, extra=seconds)
        return Started(answer, with_outputs=request.include_outputs)
