"""What a client asks the node task manager about ad-hoc tasks and batches."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from tradewind.api.node_task_manager.v1 import batch_pb2 as pb
from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.client.batches import BatchRecord, BatchStatus, batch_from
from tradewind.client.calls import new_request_id
from tradewind.client.connection import Connection
from tradewind.client.errors import InvalidInput, NotFound, Violation
from tradewind.client.following import follow
from tradewind.client.logs import LogLine, node_line_from
from tradewind.client.messages import build, describe_value
from tradewind.client.node_tasks import NodeTaskRecord, NodeTaskStatus, node_task_from
from tradewind.client.task_events import WatchedTask, watched_task_from
from tradewind.client.wire import numbers_of, object_json
from tradewind.flow.node_type import NodeType, name_of

PAGE = 500
MESSAGE_BYTES = 1024 * 1024
_MAX_FAULTS = 100

Parameters = Mapping[str, Any] | str
"""The parameters of a node: a JSON object, or its text."""


class AdHocCalls:
    """Ad-hoc tasks and batches."""

    _connection: Connection
    _user_id: str

    async def get_task(self, task_id: str, *, include_outputs: bool = True) -> NodeTaskRecord:
        """Return an ad-hoc task by its id, `task:<id>`; while it waits, `reason` says why. Raises NotFound."""
        request = build(pb.GetTaskRequest, task_id=task_id, user_id=self._user_id, include_outputs=include_outputs)
        answer = await self._connection.call(self._connection.node_task_manager.GetTask, request)
        return node_task_from(answer.task)

    async def list_tasks(self, *, statuses: Iterable[NodeTaskStatus | str] = ()) -> AsyncIterator[NodeTaskRecord]:
        """Yield the user's ad-hoc tasks, newest first; with `statuses`, only tasks in one of them."""
        numbers = numbers_of(node_task_pb2.NodeTaskStatus, statuses)
        request = build(pb.ListTasksRequest, user_id=self._user_id, statuses=numbers, page_size=PAGE)
        async for page in self._connection.pages(self._connection.node_task_manager.ListTasks, request):
            for task in page.tasks:
                yield node_task_from(task)

    async def cancel_task(self, task_id: str, *, reason: str = "") -> NodeTaskRecord:
        """Cancel an ad-hoc task and return it as it is now: skipped, asked to stop, or unchanged if it had ended.

        Raises NotFound.
        """
        request = build(pb.CancelTaskRequest, task_id=task_id, user_id=self._user_id, reason=reason, by=self._user_id)
        answer = await self._connection.call(self._connection.node_task_manager.CancelTask, request)
        return node_task_from(answer.task)

    def watch_task(self, task_id: str, *, after: str = "") -> AsyncGenerator[WatchedTask, None]:
        """Yield a node task as it is now, then after each event, at the end with its outputs.

        The id is that of an ad-hoc task, `task:<id>`, or of a node of a cycle,
        `<flow_id>:<cycle>:<run>:<node_id>[:<item>]`. With `after`, an `event_id` seen before ("0-0" for before the
        first), yield every event since then; for a node of a cycle, events are kept from its first watch on. Continues
        where it was after a lost connection. Raises NotFound, and Exhausted when 100 node tasks of a component of the
        cycle are being watched.
        """

        def resume(request: pb.WatchTaskRequest, response: pb.WatchTaskResponse) -> None:
            # Without an event, this is the task as it was before its first one: go on with all events there are.
            request.after_event_id = response.event.event_id or request.after_event_id or "0-0"

        return follow(
            self._connection,
            lambda: self._connection.node_task_manager.WatchTask,
            build(
                pb.WatchTaskRequest, task_id=task_id, user_id=self._user_id, include_outputs=True, after_event_id=after
            ),
            watched_task_from,
            lambda task: task.status.ended,
            resume,
        )

    async def get_batch(self, batch_id: str) -> BatchRecord:
        """Return a batch; while items wait, `reason` says why. Raises NotFound."""
        request = build(pb.GetBatchRequest, batch_id=batch_id, user_id=self._user_id)
        answer = await self._connection.call(self._connection.node_task_manager.GetBatch, request)
        return batch_from(answer.batch, answer.reason)

    async def list_batches(self, *, statuses: Iterable[BatchStatus | str] = ()) -> AsyncIterator[BatchRecord]:
        """Yield the user's batches, newest first; with `statuses`, only batches in one of them."""
        numbers = numbers_of(pb.BatchStatus, statuses)
        request = build(pb.ListBatchesRequest, user_id=self._user_id, statuses=numbers, page_size=PAGE)
        async for page in self._connection.pages(self._connection.node_task_manager.ListBatches, request):
            for batch in page.batches:
                yield batch_from(batch)

    async def cancel_batch(self, batch_id: str, *, reason: str = "") -> BatchRecord:
        """Cancel a batch: waiting items are skipped, running ones are asked to stop. Raises NotFound."""
        request = build(
            pb.CancelBatchRequest, batch_id=batch_id, user_id=self._user_id, reason=reason, by=self._user_id
        )
        answer = await self._connection.call(self._connection.node_task_manager.CancelBatch, request)
        return batch_from(answer.batch)

    async def delete_batch(self, batch_id: str) -> None:
        """Remove a batch that has ended, with its results and logs. Raises NotFound, WrongStatus while it is open."""
        request = build(pb.DeleteBatchRequest, batch_id=batch_id, user_id=self._user_id)
        await self._connection.call_or_done(self._connection.node_task_manager.DeleteBatch, request, NotFound)

    def watch_batch(self, batch_id: str) -> AsyncGenerator[BatchRecord, None]:
        """Yield a batch as it is now and after every change, until it has ended; otherwise like `watch_task`."""
        request = build(pb.WatchBatchRequest, batch_id=batch_id, user_id=self._user_id)
        return follow(
            self._connection,
            lambda: self._connection.node_task_manager.WatchBatch,
            request,
            lambda response: batch_from(response.batch),
            lambda batch: batch.ended,
        )

    async def list_batch_results(
        self, batch_id: str, *, include_parameters: bool = False
    ) -> AsyncIterator[NodeTaskRecord]:
        """Yield the items of a batch in order, with the outputs of those that have ended. Raises NotFound."""
        request = build(
            pb.ListBatchResultsRequest,
            batch_id=batch_id,
            user_id=self._user_id,
            page_size=PAGE,
            include_parameters=include_parameters,
        )
        async for page in self._connection.pages(self._connection.node_task_manager.ListBatchResults, request):
            for item in page.items:
                yield node_task_from(item)

    async def list_task_logs(self, id: str) -> AsyncIterator[LogLine]:
        """Yield what an ad-hoc task (`task:<id>`), or the items of a batch, logged, oldest first. Raises NotFound."""
        task_id, batch_id = (id, "") if id.startswith("task:") else ("", id)
        after = ""
        while True:
            request = build(
                pb.ListTaskLogsRequest,
                task_id=task_id,
                batch_id=batch_id,
                user_id=self._user_id,
                page_size=PAGE,
                after_log_id=after,
            )
            page = await self._connection.call(self._connection.node_task_manager.ListTaskLogs, request)
            for line in page.logs:
                yield node_line_from(line)
            if not page.more:
                return
            after = page.logs[-1].log_id

    async def _submit_task(
        self, node_type: str | NodeType, parameters: Parameters | None, request_id: str | None, options: pb.TaskOptions
    ) -> pb.SubmitTaskResponse:
        request = build(
            pb.SubmitTaskRequest,
            user_id=self._user_id,
            node_type=name_of(node_type),
            parameters_json=object_json(parameters, "parameters"),
            request_id=request_id or new_request_id(),
            options=options,
        )
        return await self._connection.call(self._connection.node_task_manager.SubmitTask, request)

    async def _submit_batch(
        self,
        node_type: str | NodeType,
        parameters: Iterable[Parameters | None],
        request_id: str | None,
        options: pb.TaskOptions,
    ) -> pb.SubmitBatchResponse:
        connection = self._connection
        if isinstance(parameters, Mapping | str) or not isinstance(parameters, Iterable):
            raise TypeError(
                f"parameters must be a list, one for each item; {describe_value(parameters)} "
                "(submit_task takes a single one)"
            )
        # Encoded before they are cut into parts: a codec makes them larger.
        whole = connection.encode(pb.SubmitBatchRequest(parameters_json=_texts(parameters)))
        if not whole.parameters_json:
            raise InvalidInput("", [Violation("parameters", "must have 1 to 10000 items, but has none")])
        head = build(
            pb.BatchHead,
            user_id=self._user_id,
            node_type=name_of(node_type),
            total=len(whole.parameters_json),
            request_id=request_id or new_request_id(),
            options=options,
        )
        parts = list(_parts(head, whole.parameters_json))
        return await connection.upload(connection.node_task_manager.SubmitBatch, parts)


def _texts(parameters: Iterable[Parameters | None]) -> list[str]:
    """Return the JSON text of each item's parameters. Raises InvalidInput with the faults of up to 100 items."""
    texts: list[str] = []
    faults: list[Violation] = []
    for place, each in enumerate(parameters):
        try:
            texts.append(object_json(each, "an item"))
        except (TypeError, ValueError) as error:
            faults.append(Violation(f"parameters[{place}]", str(error)))
            if len(faults) == _MAX_FAULTS:
                break
    if faults:
        raise InvalidInput("", faults)
    return texts


def _parts(head: pb.BatchHead, texts: Sequence[str]) -> Iterable[pb.SubmitBatchRequest]:
    """Cut a batch into messages of about 1 MiB."""
    part = pb.SubmitBatchRequest(head=head)
    size = 0
    for text in texts:
        if size and size + len(text) > MESSAGE_BYTES:
            yield part
            part, size = pb.SubmitBatchRequest(), 0
        part.parameters_json.append(text)
        size += len(text)
    yield part
