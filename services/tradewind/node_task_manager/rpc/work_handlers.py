"""The part of NodeTaskManagerService for workers: parse, call the use case, answer."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as pb2_grpc
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.ports.work import Held, Outcome, Termination
from tradewind.node_task_manager.rpc import checks
from tradewind.node_task_manager.rpc import work_mapping as mapping
from tradewind.node_task_manager.rpc.eager_mapping import require_no_eager
from tradewind.node_task_manager.rpc.offer_mapping import offers
from tradewind.node_task_manager.rpc.times import timestamp
from tradewind.node_task_manager.rpc.token_checks import tokens_of
from tradewind.node_task_manager.rpc.unknown_tokens import remove_unknown_tokens
from tradewind.node_task_manager.rpc.work_stream import WorkStream
from tradewind.node_task_manager.use_cases.connect import Connections
from tradewind.node_task_manager.use_cases.connected_worker import Offer
from tradewind.node_task_manager.use_cases.node_task_records import ANSWER_BYTES
from tradewind.node_task_manager.use_cases.notes import Notes
from tradewind.node_task_manager.use_cases.record_connections import RecordConnections
from tradewind.node_task_manager.use_cases.system_config import FollowConfig
from tradewind.node_task_manager.use_cases.trace_nodes import TraceNodes
from tradewind.node_task_manager.use_cases.unary_work import UnaryWork
from tradewind.server.clock import Clock
from tradewind.server.faults import FailedPrecondition, InvalidInput
from tradewind.server.interception import Context
from tradewind.server.streams import OpenStreams

_MAX_CLAIMED = 500


@dataclass(eq=False, kw_only=True)
class WorkHandlers(pb2_grpc.NodeTaskManagerServiceServicer):
    """Work for workers, over a stream or call by call."""

    unary: UnaryWork
    connections: Connections
    notes: Notes
    record_connections: RecordConnections
    config: FollowConfig
    streams: OpenStreams
    traces: TraceNodes | None
    shards: Collection[int]
    limits: Limits
    clock: Clock

    async def Work(self, request_iterator: object, context: Context) -> None:  # type: ignore[override]
        # It writes to the context instead of yielding, so that a write waits for nothing but the stream.
        with self.streams.opened():
            caches = self.config.caches
            stream = WorkStream(self.connections, self.notes, self.limits, self.clock, caches, self.traces)
            await stream.serve(context)

    async def ClaimNodeTasks(self, request: pb2.ClaimNodeTasksRequest, context: Context) -> pb2.ClaimNodeTasksResponse:
        checks.claim(request)
        limit = min(request.limit or 1, _MAX_CLAIMED)
        offered = dict.fromkeys(request.node_types, Offer()) | offers(request.node_types, request.offers)
        self.record_connections.claimed(request.worker_id, frozenset(request.node_types))
        ready = await self.unary.claim(request.worker_id, offered, limit, ANSWER_BYTES)
        now_ms = self.clock.now_ms()
        assignments = [mapping.assignment(each, now_ms) for each in ready]
        return pb2.ClaimNodeTasksResponse(assignments=assignments, sent_at=timestamp(now_ms))

    async def RenewLeases(self, request: pb2.RenewLeasesRequest, context: Context) -> pb2.RenewLeasesResponse:
        tokens_of(request.worker_id, "tokens", request.tokens, self.shards)
        held = mapping.held("tokens", request.tokens, self.shards)
        lost, terminations, deadline = await self.unary.renew(request.worker_id, held)
        return pb2.RenewLeasesResponse(
            losses=_losses(lost), terminations=self._terminations(terminations), lease_deadline=timestamp(deadline)
        )

    async def CompleteNodeTasks(
        self, request: pb2.CompleteNodeTasksRequest, context: Context
    ) -> pb2.CompleteNodeTasksResponse:
        tokens = [each.token for each in request.completions]
        tokens_of(request.worker_id, "completions", tokens, self.shards, ".token")
        require_no_eager(request.completions)
        outcomes = [mapping.completion(at, each, self.shards) for at, each in enumerate(request.completions)]
        mapping.note_ends(self.traces, request.completions)
        return pb2.CompleteNodeTasksResponse(losses=await self._ended(request.worker_id, outcomes))

    async def FailNodeTasks(self, request: pb2.FailNodeTasksRequest, context: Context) -> pb2.FailNodeTasksResponse:
        tokens_of(request.worker_id, "failures", [each.token for each in request.failures], self.shards, ".token")
        outcomes = [mapping.failure(at, each, self.shards) for at, each in enumerate(request.failures)]
        mapping.note_ends(self.traces, request.failures)
        self.notes.add((), list(mapping.failure_lines(outcomes)))
        return pb2.FailNodeTasksResponse(losses=await self._ended(request.worker_id, outcomes))

    async def ReportNodeTasks(
        self, request: pb2.ReportNodeTasksRequest, context: Context
    ) -> pb2.ReportNodeTasksResponse:
        checks.report(request)
        try:
            return await self._reported(request)
        except InvalidInput:
            # Whoever reaches a worker may have handed it anything: that must not keep back what else it has to say.
            if not (unknown := remove_unknown_tokens(request, self.shards)):
                raise
        answer = await self._reported(request)
        answer.losses.extend(unknown)
        return answer

    async def _reported(self, request: pb2.ReportNodeTasksRequest) -> pb2.ReportNodeTasksResponse:
        require_no_eager(request.completions)
        shards = self.shards
        outcomes = [mapping.completion(at, each, shards) for at, each in enumerate(request.completions)]
        failures = [mapping.failure(at, each, shards) for at, each in enumerate(request.failures)]
        given_back = mapping.held("give_back_tokens", request.give_back_tokens, shards)
        held = mapping.held("held_tokens", request.held_tokens, shards)
        progress = [mapping.progress(at, each, shards) for at, each in enumerate(request.progress)]
        lines = [mapping.line(at, each, shards) for at, each in enumerate(request.logs)]
        mapping.note_ends(self.traces, request.completions)
        mapping.note_ends(self.traces, request.failures)
        self.notes.add(progress, [*lines, *mapping.failure_lines(failures)])
        await self.notes.write_before([*outcomes, *failures], given_back)
        lost = await self.unary.end(request.worker_id, [*outcomes, *failures])
        await self.unary.give_back(request.worker_id, given_back)
        unrenewed, terminations, deadline = await self.unary.renew(request.worker_id, held)
        return pb2.ReportNodeTasksResponse(
            losses=_losses([*lost, *unrenewed]),
            terminations=self._terminations(terminations),
            lease_deadline=timestamp(deadline) if held else None,
        )

    def _terminations(self, wanted: Sequence[tuple[int, Termination]]) -> list[work_pb2.NodeTaskTermination]:
        return [mapping.termination(shard, each, self.limits.stop_grace_ms) for shard, each in wanted]

    async def _ended(self, worker_id: str, outcomes: Sequence[tuple[int, Outcome]]) -> list[work_pb2.LeaseLoss]:
        await self.notes.write_before(outcomes, ())
        lost = await self.unary.end(worker_id, outcomes)
        if len(outcomes) == 1 and lost:
            (_, held, reason) = lost[0]
            raise FailedPrecondition("LEASE_LOST", reason, f"node_tasks/{held.task_id}")
        return _losses(lost)


def _losses(lost: Sequence[tuple[int, Held, str]]) -> list[work_pb2.LeaseLoss]:
    return [work_pb2.LeaseLoss(token=mapping.token_text(shard, held), reason=reason) for shard, held, reason in lost]
