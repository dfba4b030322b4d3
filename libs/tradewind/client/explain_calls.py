"""What a client asks about the reasons for the state of flows and node tasks."""

from tradewind.api.node_task_manager.v1 import explanation_pb2 as of_node_tasks
from tradewind.api.scheduler.v1 import explanation_pb2 as pb
from tradewind.client.connection import Connection
from tradewind.client.messages import build
from tradewind.client.reasons import Reason, reasons_from


class ExplainCalls:
    """Why flows and node tasks are in the state that they are in."""

    _connection: Connection
    _user_id: str

    async def explain_flow(self, flow_id: str) -> tuple[Reason, ...]:
        """Return why a flow begins no cycle now, and when it will; the most decisive reason first. Raises NotFound."""
        request = build(pb.ExplainFlowRequest, flow_id=flow_id)
        answer = await self._connection.call(self._connection.scheduler.ExplainFlow, request)
        return reasons_from(answer.reasons)

    async def explain_node(
        self, flow_id: str, node_id: str, *, cycle: int | None = None, run: int | None = None
    ) -> tuple[Reason, ...]:
        """Return why a node of a cycle (the latest by default) waits, runs or ended as it did.

        `<node>:<item>` names an item of a node that runs over a list. The most decisive reason comes first.
        Raises NotFound.
        """
        request = build(pb.ExplainNodeRequest, flow_id=flow_id, node_id=node_id, cycle=cycle, run=run)
        answer = await self._connection.call(self._connection.scheduler.ExplainNode, request)
        return reasons_from(answer.reasons)

    async def explain_node_task(self, node_task_id: str) -> tuple[Reason, ...]:
        """Return why a node task, such as an ad-hoc one, waits, runs or ended as it did.

        Returns only what the node task manager knows. Raises NotFound.
        """
        request = of_node_tasks.ExplainNodeTaskRequest(node_task_id=node_task_id, user_id=self._user_id)
        answer = await self._connection.call(self._connection.node_task_manager.ExplainNodeTask, request)
        return reasons_from(answer.reasons)
