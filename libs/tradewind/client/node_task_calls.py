"""What a client asks the node task manager."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb
from tradewind.client.connection import Connection
from tradewind.client.messages import build
from tradewind.client.node_tasks import NodeTaskRecord, node_task_from
from tradewind.client.wire import as_list

PAGE = 500
WORKERS = 1000
"""How many workers one call may ask about."""


class NodeTaskCalls:
    """Node tasks."""

    _connection: Connection
    _user_id: str

    async def get_node_task(self, node_task_id: str, *, include_outputs: bool = True) -> NodeTaskRecord:
        """Return a node task by its id, `<flow_id>:<cycle>:<run>:<node_id>[:<item>]`. Raises NotFound."""
        request = build(
            pb.GetNodeTaskRequest, node_task_id=node_task_id, user_id=self._user_id, include_outputs=include_outputs
        )
        answer = await self._connection.call(self._connection.node_task_manager.GetNodeTask, request)
        return node_task_from(answer.node_task)

    async def terminate_node_task(self, node_task_id: str, *, reason: str = "") -> NodeTaskRecord:
        """Stop a node task and return it as it is now: skipped, asked to stop, or unchanged if it had ended.

        Raises NotFound.
        """
        request = build(
            pb.TerminateNodeTaskRequest,
            node_task_id=node_task_id,
            user_id=self._user_id,
            reason=reason,
            by=self._user_id,
        )
        answer = await self._connection.call(self._connection.node_task_manager.TerminateNodeTask, request)
        return node_task_from(answer.node_task)

    async def list_node_tasks(
        self,
        flow_id: str,
        cycle: int,
        run: int = 0,
        *,
        node_ids: Sequence[str] = (),
        include_outputs: bool = False,
        items_of: str = "",
    ) -> AsyncIterator[NodeTaskRecord]:
        """Yield the node tasks of a run of a cycle in the order of the flow; with `node_ids`, only those nodes.

        With `items_of`, the name of a node that runs once for each item of a list, yield its items instead, in order;
        raises NotFound when there is no such node.
        """
        request = build(
            pb.ListNodeTasksRequest,
            flow_id=flow_id,
            cycle=cycle,
            run=run,
            user_id=self._user_id,
            include_outputs=include_outputs,
            page_size=PAGE,
            node_ids=as_list(node_ids),
            items_of=items_of,
        )
        async for page in self._connection.pages(self._connection.node_task_manager.ListNodeTasks, request):
            for node_task in page.node_tasks:
                yield node_task_from(node_task)

    async def connected_since(self, worker_ids: Sequence[str]) -> dict[str, datetime]:
        """Return, by worker id, since when workers are connected to a node task manager; others are left out."""
        since: dict[str, datetime] = {}
        for first in range(0, len(worker_ids), WORKERS):
            request = pb.ListConnectionsRequest(worker_ids=worker_ids[first : first + WORKERS])
            answer = await self._connection.call(self._connection.node_task_manager.ListConnections, request)
            for each in answer.connections:
                since[each.worker_id] = each.connected_since.ToDatetime(UTC)
        return since

    async def list_worker_tasks(self, worker_id: str) -> AsyncIterator[NodeTaskRecord]:
        """Yield the node tasks that are leased to a worker, by id."""
        request = build(pb.ListWorkerTasksRequest, worker_id=worker_id, page_size=PAGE)
        async for page in self._connection.pages(self._connection.node_task_manager.ListWorkerTasks, request):
            for node_task in page.node_tasks:
                yield node_task_from(node_task)
