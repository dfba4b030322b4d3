"""What a client says to node tasks that wait."""

from collections.abc import Mapping
from typing import Any

from tradewind.api.node_task_manager.v1 import waiting_pb2 as pb
from tradewind.client import json_text
from tradewind.client.calls import new_request_id
from tradewind.client.connection import Connection
from tradewind.client.messages import made
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
        """Send a signal to a node task and return it as it is then; one without a name is the one it waits for.

        While it does not wait, the signal is kept for a later wait, unless `only_if_waiting`. The same `request_id`
        again changes nothing. `owner` is whose node task it is, if not the client's own user's; `by` who sends it.

        Raises NotFound, WrongStatus for one that has ended or waits for something else, InvalidInput with every fault
        of an answer to a form, Exhausted when too many signals are kept, ValueError for a payload that is no JSON.
        """
        request = made(
            pb.SignalNodeRequest,
            node_task_id=node_task_id,
            user_id=owner or self._user_id,
            signal=signal,
            payload_json=json_text.encode(payload),
            by=by or self._user_id,
            request_id=request_id or new_request_id(),
            only_if_waiting=only_if_waiting,
        )
        answer = await self._connection.to_node_task_manager.call(
            self._connection.node_task_manager.SignalNode, request
        )
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
        """Answer the form of a node task that waits: approve or reject, with the values of its fields by name.

        Otherwise as `signal_node`.
        """
        payload = {"approved": approved, "values": dict(values or {})}
        return await self.signal_node(
            node_task_id, "", payload, by=by, request_id=request_id, only_if_waiting=True, owner=owner
        )
