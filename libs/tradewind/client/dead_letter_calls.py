"""What a client asks about dead letters: node tasks that were given up."""

from collections.abc import AsyncIterator, Sequence

from tradewind.api.node_task_manager.v1 import dead_letter_pb2 as pb
from tradewind.client.connection import Connection
from tradewind.client.messages import build
from tradewind.client.node_tasks import NodeTaskRecord, node_task_from
from tradewind.client.wire import as_list

PAGE = 200


class DeadLetterCalls:
    """Dead letters."""

    _connection: Connection
    _user_id: str

    async def list_dead_letters(self) -> AsyncIterator[NodeTaskRecord]:
        """Yield the user's node tasks that were given up, newest first, with their history."""
        request = build(pb.ListDeadLettersRequest, user_id=self._user_id, page_size=PAGE)
        async for page in self._connection.pages(self._connection.node_task_manager.ListDeadLetters, request):
            for node_task in page.node_tasks:
                yield node_task_from(node_task)

    async def redrive_dead_letters(self, node_task_ids: Sequence[str]) -> dict[str, str]:
        """Submit the work of dead letters again; return the id of the new ad-hoc task for each.

        They must be ad-hoc tasks or items of batches, 1 to 100 of them; redriving one twice returns the same task.
        Raises NotFound, and WrongStatus for a node task that did not fail or is a node of a flow; then nothing is
        submitted.
        """
        request = build(pb.RedriveDeadLettersRequest, user_id=self._user_id, node_task_ids=as_list(node_task_ids))
        answer = await self._connection.call(self._connection.node_task_manager.RedriveDeadLetters, request)
        return {each.node_task_id: each.task_id for each in answer.redriven}
