"""One worker's stream: incoming messages go to the use cases, outgoing ones are written as fast as they are read."""

from collections.abc import Awaitable, Callable, Collection, Iterator
from itertools import islice

import grpc

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.ports.work import Outcome
from tradewind.node_task_manager.rpc import work_mapping as mapping
from tradewind.node_task_manager.rpc.cache_mapping import unknown_cache
from tradewind.node_task_manager.rpc.checks import MAX_NODE_TYPES
from tradewind.node_task_manager.rpc.eager_mapping import any_begun, with_eager
from tradewind.node_task_manager.rpc.offer_mapping import offer_faults, offers
from tradewind.node_task_manager.rpc.outgoing_line import OutgoingLine
from tradewind.node_task_manager.use_cases.connect import Connections
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker
from tradewind.node_task_manager.use_cases.notes import Notes
from tradewind.node_task_manager.use_cases.trace_nodes import TraceNodes
from tradewind.server.all_faults import require
from tradewind.server.clock import Clock
from tradewind.server.faults import FailedPrecondition, InvalidInput, Violation
from tradewind.server.identifiers import check_identifier
from tradewind.server.interception import Context
from tradewind.server.streams import run_both

_MAX_CAPACITY = 10_000
_MAX_INCARNATION = 128
_USUAL = frozenset({"sequence", "completions"})
_PONG = frozenset({"sequence", "pong"})


class WorkStream:
    """Serves one Work call."""

    def __init__(
        self,
        connections: Connections,
        notes: Notes,
        limits: Limits,
        clock: Clock,
        caches: Callable[[str], Awaitable[Collection[str]]],
        traces: TraceNodes | None = None,
    ) -> None:
        """`caches` returns the names of all caches, and asks the store again if the given one is not among them."""
        self._connections = connections
        self._traces = traces
        self._notes = notes
        self._lease_ms = limits.lease_ms
        self._line = OutgoingLine(limits.stop_grace_ms, clock, self._on_writable)
        self._caches = caches
        self._warnings: list[str] = []
        self._worker: ConnectedWorker | None = None

    async def serve(self, context: Context) -> None:
        """Read and write until either side ends.

        Raises InvalidInput for invalid messages, FailedPrecondition when a newer stream has replaced this one.
        """
        try:
            await run_both(context, self._read(context), self._write(context))
            if self._line.closed_for and self._worker is not None:
                raise FailedPrecondition("SESSION_REPLACED", self._line.closed_for, f"workers/{self._worker.worker_id}")
        finally:
            self._line.close("the stream has ended")
            if self._worker is not None:
                self._connections.close(self._worker)

    async def _write(self, context: Context) -> None:
        while (message := await self._line.next()) is not None:
            await context.write(message)

    async def _read(self, context: Context) -> None:
        hello = await context.read()
        if hello is grpc.aio.EOF:
            return
        worker = await self._handle_hello(hello)
        while (message := await context.read()) is not grpc.aio.EOF:
            await self._handle(worker, message)
            if self._line.overfull:
                # Read nothing from a worker that reads nothing: each of its messages may need an answer.
                await self._line.writable()

    async def _handle_hello(self, message: work_pb2.WorkRequest) -> ConnectedWorker:
        hello = message.hello
        if not message.HasField("hello"):
            raise InvalidInput([Violation("hello", "the first message of a Work stream must say hello")])
        require(_hello_faults(hello))
        held = mapping.held("hello.held_tokens", hello.held_tokens, self._connections.shards)
        capacity = 0 if message.draining else hello.capacity
        offered = offers(hello.node_types, hello.offers)
        types = tuple(dict.fromkeys(hello.node_types))
        worker = ConnectedWorker(hello.worker_id, hello.incarnation, types, capacity, self._line, offers=offered)
        self._worker = worker
        for node_type, offer in offered.items():
            if offer.cache is not None and offer.cache.name not in (known := await self._caches(offer.cache.name)):
                fault = unknown_cache("cache", offer.cache.name, known)
                self._warnings.append(f'node type "{node_type}" runs without a cache: {fault.message}')
        await self._connections.open(worker, held, self._welcome)
        return worker

    def _welcome(self, session: int) -> None:
        welcome = work_pb2.WorkerWelcome(session=session, warnings=self._warnings)
        welcome.lease.FromMilliseconds(self._lease_ms)
        welcome.renew_interval.FromMilliseconds(self._lease_ms // 3)
        self._line.send(welcome=welcome)

    async def _handle(self, worker: ConnectedWorker, message: work_pb2.WorkRequest) -> None:
        if message.sequence < 1:
            # It could not be acknowledged, so the worker would report its outcomes for ever.
            fault = f"must be the number of this message on the stream, from 1, is {message.sequence}"
            raise InvalidInput([Violation("sequence", fault)])
        shards, completions = self._connections.shards, message.completions[:]
        outcomes = [mapping.completion(at, each, shards) for at, each in enumerate(completions)]
        mapping.note_ends(self._traces, completions)
        # Most messages hold nothing else, and checking each field costs more than listing those that are set.
        fields = [field.name for field, _ in message.ListFields()]
        if _USUAL.issuperset(fields) and not self._notes.has_progress:
            chained = with_eager(worker.worker_id, outcomes, completions)
            awaited = chained is not outcomes and any_begun(chained)
            await self._connections.handle_message(worker, message.sequence, chained, awaited=awaited)
        elif _PONG.issuperset(fields):
            # Nobody waits for its acknowledgement; sending it with the next one halves what wakes idle workers.
            self._handle_pong(worker)
        else:
            await self._handle_all_fields(worker, message, outcomes)

    async def _handle_all_fields(
        self, worker: ConnectedWorker, message: work_pb2.WorkRequest, outcomes: list[tuple[int, Outcome]]
    ) -> None:
        if message.HasField("hello"):
            raise InvalidInput([Violation("hello", "only the first message may say hello")])
        shards = self._connections.shards
        failures = [mapping.failure(at, each, shards) for at, each in enumerate(message.failures)]
        mapping.note_ends(self._traces, message.failures)
        outcomes = with_eager(worker.worker_id, [*outcomes, *failures], message.completions)
        given_back = mapping.held("give_back_tokens", message.give_back_tokens, shards)
        renewed = mapping.held("held_tokens", message.held_tokens, shards) if message.renew else None
        if message.progress or message.logs or failures:
            progress = [mapping.progress(at, each, shards) for at, each in enumerate(message.progress)]
            lines = [mapping.line(at, each, shards) for at, each in enumerate(message.logs)]
            self._notes.add(progress, [*lines, *mapping.failure_lines(failures)])
        if message.draining or message.capacity:
            worker.capacity = 0 if message.draining else min(message.capacity, _MAX_CAPACITY)
            self._connections.refresh(worker)
        if message.pong:
            self._handle_pong(worker)
        # A worker that leaves waits until nothing more can come.
        awaited = message.draining or any_begun(outcomes)
        await self._notes.write_before(outcomes, given_back)
        await self._connections.handle_message(worker, message.sequence, outcomes, given_back, renewed, awaited=awaited)

    def _handle_pong(self, worker: ConnectedWorker) -> None:
        """Note that a ping is answered: a worker that was silent has room again."""
        silent, worker.unanswered_pings = worker.silent, 0
        if silent:
            self._connections.answers_pings_again(worker)

    def _on_writable(self) -> None:
        if self._worker is not None:
            self._connections.refresh(self._worker)


def _hello_faults(hello: work_pb2.WorkerHello) -> Iterator[Violation | None]:
    yield check_identifier("hello.worker_id", hello.worker_id)
    if len(hello.node_types) > MAX_NODE_TYPES:
        yield Violation("hello.node_types", f"at most {MAX_NODE_TYPES}, there are {len(hello.node_types)}")
    for at, name in enumerate(hello.node_types[:MAX_NODE_TYPES]):
        yield check_identifier(f"hello.node_types[{at}]", name)
    if len(hello.incarnation) > _MAX_INCARNATION:
        yield Violation("hello.incarnation", f"must have at most {_MAX_INCARNATION} characters")
    if not 0 <= hello.capacity <= _MAX_CAPACITY:
        yield Violation("hello.capacity", f"must be 0 to {_MAX_CAPACITY}, is {hello.capacity}")
    yield from islice(offer_faults("hello.offers", hello.offers), MAX_NODE_TYPES)
