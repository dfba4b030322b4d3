"""What a client sends to node tasks that wait."""

from collections.abc import Mapping
from typing import Any

from tradewind.api.node_task_manager.v1 import waiting_pb2 as pb
from tradewind.client import json_text
from tradewind.client.calls import new_request_id
from tradewind.client.connection import Connection
from tradewind.client.messages import build
from tradewind.client.node_tasks import NodeTaskRecord, node_task_from


class SignalCalls:
    """Signals and answers."""

    _connection: Connection
    _user_id: str

    async def signal_node(
        self,
        node_task_id: str,
        signal: str = "",
        payload: Any = None,
        *,
        by: str = "",
        request_id: str = "",
        only_if_waiting: bool = False,
        owner: str = "",
    ) -> NodeTaskRecord:
        """Send a signal to a node task, by default the signal it waits for, and return the node task as it is then.

        If it does not wait now, the signal is kept for a later wait, unless `only_if_waiting`. Repeating a
        `request_id` changes nothing. `owner` is the user that the node task belongs to, by default the client's own;
        `by` is who sends the signal.

        Raises NotFound, WrongStatus for a node task that has ended or waits for something else, InvalidInput with every
        fault of an answer to a form, Exhausted when too many signals are kept, ValueError for a payload that is not
        JSON.
        """
        request = build(
            pb.SignalNodeRequest,
            node_task_id=node_task_id,
            user_id=owner or self._user_id,
            signal=signal,
            payload_json=json_text.encode(payload),
            by=by or self._user_id,
            request_id=request_id or new_request_id(),
            only_if_waiting=only_if_waiting,
        )
        answer = await self._connection.call(self._connection.node_task_manager.SignalNode, request)
        return node_task_from(answer.node_task)

    async def answer_node(
        self,
        node_task_id: str,
        *,
        approved: bool = True,
        values: Mapping[str, Any] | None = None,
        by: str = "",
        request_id: str = "",
        owner: str = "",
    ) -> NodeTaskRecord:
        """Answer the form of a waiting node task: approve or reject it, with the values of its fields by name.

        Otherwise like `signal_node` with `only_if_waiting`.
        """
        payload = {"approved": approved, "values": dict(values or {})}
        return await self.signal_node(
            node_task_id, "", payload, by=by, request_id=request_id, only_if_waiting=True, owner=owner
        )
