"""The part of NodeTaskManagerService for ad-hoc tasks and batches: parse, call the use case, answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

from tradewind.api.node_task_manager.v1 import batch_pb2 as pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as pb2_grpc
from tradewind.node_task_manager.domain.batch import BatchProgress, batch_status
from tradewind.node_task_manager.domain.component import Component, ComponentStatus
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.rpc import ad_hoc_checks, ad_hoc_mapping, checks, mapping
from tradewind.node_task_manager.rpc.stop_mapping import reason_and_actor
from tradewind.node_task_manager.use_cases.ad_hoc import AdHoc, Position
from tradewind.node_task_manager.use_cases.submit_ad_hoc import SubmitAdHoc
from tradewind.node_task_manager.use_cases.system_config import FollowConfig
from tradewind.node_task_manager.use_cases.watch_runs import RunWatch
from tradewind.server.access.identity import effective_user_id
from tradewind.server.all_faults import every
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import require_identifiers
from tradewind.server.interception import Context
from tradewind.server.paging import page_of, page_size_of, page_token
from tradewind.server.sizes import size_of
from tradewind.server.streams import OpenStreams


@dataclass(eq=False, kw_only=True)
class AdHocHandlers(pb2_grpc.NodeTaskManagerServiceServicer):
    """Ad-hoc tasks and batches."""

    submit_ad_hoc: SubmitAdHoc
    ad_hoc: AdHoc
    watch: RunWatch
    streams: OpenStreams
    config: FollowConfig

    async def SubmitTask(self, request: pb2.SubmitTaskRequest, context: Context) -> pb2.SubmitTaskResponse:
        ad_hoc_checks.task(request, await self.config.caches(request.options.cache.name))
        work = ad_hoc_mapping.task_work(request)
        accepted = await self.submit_ad_hoc(work, require_worker=request.options.require_worker, unreadable={})
        view = await self.ad_hoc.task(str(accepted.run), request.user_id)
        return pb2.SubmitTaskResponse(
            task=mapping.node_task(view, config=True), duplicate=accepted.duplicate, warnings=accepted.warnings
        )

    async def GetTask(self, request: pb2.GetTaskRequest, context: Context) -> pb2.GetTaskResponse:
        ad_hoc_checks.task_run(request.task_id, request.user_id)
        view = await self.ad_hoc.task(request.task_id, request.user_id, outputs=request.include_outputs)
        return pb2.GetTaskResponse(task=mapping.node_task(view, config=True))

    async def ListTasks(self, request: pb2.ListTasksRequest, context: Context) -> pb2.ListTasksResponse:
        (after, limit), statuses = every(
            lambda: page_of(request, Position, user_id=request.user_id),
            lambda: ad_hoc_mapping.task_statuses(request.statuses),
        )
        views, following = await self.ad_hoc.tasks(request.user_id, statuses, after, limit)
        return pb2.ListTasksResponse(
            tasks=[mapping.node_task(each) for each in views], next_page_token=page_token(following)
        )

    async def CancelTask(self, request: pb2.CancelTaskRequest, context: Context) -> pb2.CancelTaskResponse:
        ad_hoc_checks.task_run(request.task_id, request.user_id)
        reason, by = reason_and_actor(request, "cancelled", request.user_id)
        view = await self.ad_hoc.cancel_task(request.task_id, request.user_id, reason, by)
        return pb2.CancelTaskResponse(task=mapping.node_task(view))

    async def SubmitBatch(
        self, request_iterator: AsyncIterator[pb2.SubmitBatchRequest], context: Context
    ) -> pb2.SubmitBatchResponse:
        with self.streams.opened():
            head, parameters = await self._uploaded(request_iterator)
        work = ad_hoc_mapping.batch_work(head, parameters)
        unreadable = await asyncio.to_thread(ad_hoc_checks.unreadable_items, parameters)
        accepted = await self.submit_ad_hoc(work, require_worker=head.options.require_worker, unreadable=unreadable)
        batch = await self.ad_hoc.batch(accepted.run.batch_id, head.user_id)
        return pb2.SubmitBatchResponse(
            batch=ad_hoc_mapping.batch(batch), duplicate=accepted.duplicate, warnings=accepted.warnings
        )

    async def GetBatch(self, request: pb2.GetBatchRequest, context: Context) -> pb2.GetBatchResponse:
        require_identifiers(batch_id=request.batch_id, user_id=request.user_id)
        batch = await self.ad_hoc.batch(request.batch_id, request.user_id)
        reason = await self.ad_hoc.wait_reason(batch)
        return pb2.GetBatchResponse(batch=ad_hoc_mapping.batch(batch), reason=reason)

    async def ListBatches(self, request: pb2.ListBatchesRequest, context: Context) -> pb2.ListBatchesResponse:
        (after, limit), statuses = every(
            lambda: page_of(request, Position, user_id=request.user_id),
            lambda: ad_hoc_mapping.batch_statuses(request.statuses),
        )
        batches, following = await self.ad_hoc.batches(request.user_id, statuses, after, limit)
        return pb2.ListBatchesResponse(
            batches=[ad_hoc_mapping.batch(each) for each in batches], next_page_token=page_token(following)
        )

    async def ListBatchResults(
        self, request: pb2.ListBatchResultsRequest, context: Context
    ) -> pb2.ListBatchResultsResponse:
        after, limit = page_of(request, int, batch_id=request.batch_id, user_id=request.user_id)
        views, following = await self.ad_hoc.results(
            request.batch_id,
            request.user_id,
            after or 0,
            limit,
            outputs=not request.omit_outputs,
            config=request.include_parameters,
        )
        return pb2.ListBatchResultsResponse(
            items=[mapping.node_task(each, config=request.include_parameters) for each in views],
            next_page_token=page_token(following or None),
        )

    async def CancelBatch(self, request: pb2.CancelBatchRequest, context: Context) -> pb2.CancelBatchResponse:
        require_identifiers(batch_id=request.batch_id, user_id=request.user_id)
        reason, by = reason_and_actor(request, "cancelled", request.user_id)
        batch = await self.ad_hoc.cancel_batch(request.batch_id, request.user_id, reason, by)
        return pb2.CancelBatchResponse(batch=ad_hoc_mapping.batch(batch))

    async def DeleteBatch(self, request: pb2.DeleteBatchRequest, context: Context) -> pb2.DeleteBatchResponse:
        require_identifiers(batch_id=request.batch_id, user_id=request.user_id)
        await self.ad_hoc.delete_batch(request.batch_id, request.user_id)
        return pb2.DeleteBatchResponse()

    async def WatchBatch(self, request: pb2.WatchBatchRequest, context: Context) -> None:  # type: ignore[override]
        require_identifiers(batch_id=request.batch_id, user_id=request.user_id)
        run = str(RunName.of_batch(request.batch_id))

        async def read() -> Component:
            return await self.ad_hoc.batch(request.batch_id, request.user_id)

        with self.streams.opened():
            changes = self.watch.follow(
                run, request.user_id, read, _batch_fingerprint, lambda each: each.status is ComponentStatus.FINISHED
            )
            async with aclosing(changes):
                async for batch in changes:
                    await context.write(pb2.WatchBatchResponse(batch=ad_hoc_mapping.batch(batch)))

    async def ListTaskLogs(self, request: pb2.ListTaskLogsRequest, context: Context) -> pb2.ListTaskLogsResponse:
        run, _, size = every(
            lambda: ad_hoc_checks.logged_run(request),
            lambda: checks.log_position(request.after_log_id),
            lambda: page_size_of(request.page_size),
        )
        lines, more = await self.ad_hoc.lines(run, request.user_id, request.after_log_id, size)
        return pb2.ListTaskLogsResponse(logs=[mapping.log_line(line) for line in lines], more=more)

    async def _uploaded(self, messages: AsyncIterator[pb2.SubmitBatchRequest]) -> tuple[pb2.BatchHead, list[str]]:
        """Read the parts of a batch. Raises InvalidInput at the first message with faults, naming all of them."""
        head: pb2.BatchHead | None = None
        parameters: list[str] = []
        size = 0
        async for message in messages:
            if head is None:
                if message.HasField("head"):
                    message.head.user_id = effective_user_id(message.head.user_id)
                ad_hoc_checks.head(message, await self.config.caches(message.head.options.cache.name))
                head = message.head
            elif message.HasField("head"):
                raise InvalidInput([Violation("head", "must be in the first message only")])
            parameters += message.parameters_json
            size += sum(map(size_of, message.parameters_json))
            if len(parameters) > head.total:
                raise InvalidInput([Violation("head.total", f"is {head.total}, but more items were sent")])
            if size > ad_hoc_checks.MAX_BATCH_BYTES:
                limit = ad_hoc_checks.MAX_BATCH_BYTES // 1024 // 1024
                raise InvalidInput([Violation("parameters_json", f"must have at most {limit} MiB in all")])
        if head is None:
            raise InvalidInput([Violation("head", "must be in the first message, but no message was sent")])
        if len(parameters) < head.total:
            raise InvalidInput([Violation("head.total", f"is {head.total}, but {len(parameters)} items were sent")])
        return head, parameters


def _batch_fingerprint(component: Component) -> object:
    return batch_status(component), BatchProgress.of(component), component.stop
