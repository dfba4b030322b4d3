"""The Work stream: it brings node tasks, takes outcomes, and is reopened whenever it ends."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import grpc

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.server.backoff import Backoff
from tradewind.server.statuses import reason_of
from tradewind.worker.errors import SessionReplaced
from tradewind.worker.executor import Executor
from tradewind.worker.identity import Identity
from tradewind.worker.link import Link
from tradewind.worker.outbox import Outbox
from tradewind.worker.times import seconds_of

if TYPE_CHECKING:
    from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceAsyncStub

logger = logging.getLogger("tradewind.worker")

WELCOME_TIMEOUT = 10.0
_RENEW_INTERVAL = 10.0
NAMING_DELAY = 1.0
"""Seconds after which tokens still held are named to the server, which resends tokens not named within 2 s."""

_Call: TypeAlias = "grpc.aio.StreamStreamCall[work_pb2.WorkRequest, work_pb2.WorkResponse]"


class WorkStream(Link):
    """Connects an executor and its outbox to a node task manager, through any number of streams one after another.

    When a stream ends, another is opened after a pause of 50 ms to 5 s; nodes go on meanwhile, and unacknowledged
    reports are sent again.
    """

    def __init__(
        self,
        stub: "NodeTaskManagerServiceAsyncStub",
        identity: Identity,
        executor: Executor,
        outbox: Outbox,
        offers: Sequence[work_pb2.OfferedType],
    ) -> None:
        """`offers` is what to tell the node task manager about node types besides their names."""
        trouble = "not connected; nodes continue, and the stream will be reopened"
        super().__init__(stub, identity, executor, outbox, trouble)
        self._offers = offers
        self._naming: asyncio.TimerHandle | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._warned: set[str] = set()
        self._lease = math.inf
        self._last_seen = 0.0
        self._paused = False

    def drain(self) -> None:
        """Take no more node tasks: those that are still assigned are given back at once."""
        self._draining = True
        self._executor.eager_enabled = False
        self._outbox.drain(connected=self.connected.is_set())

    async def run(self) -> None:
        """Stay connected until finished. Raises SessionReplaced, and WorkerRefused when no stream can be opened."""
        backoff = Backoff()
        while not self._finishing:
            began = time.monotonic()
            try:
                await self._session()
            except grpc.aio.AioRpcError as error:
                self._note(error)
            except TimeoutError:
                self._troubles.log_once(f"no answer within {WELCOME_TIMEOUT:g} s")
            if self._finishing:
                return
            if time.monotonic() - began > 1.0:
                backoff.reset()
            await backoff.pause()

    async def _session(self) -> None:
        """Open one stream and use it until it ends. Raises AioRpcError when its status is not OK."""
        call: _Call = self._stub.Work()
        work: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(WELCOME_TIMEOUT):
                with contextlib.suppress(asyncio.InvalidStateError):  # it has failed already: reading says why
                    await call.write(self._hello())
                first = await call.read()
            if not isinstance(first, work_pb2.WorkResponse) or not first.HasField("welcome"):
                self._troubles.log_once("the node task manager did not welcome this worker")
                return
            self._handle(first)
            self._welcome(first.welcome)
            work = [asyncio.create_task(self._read(call)), asyncio.create_task(self._write(call))]
            await asyncio.wait(work, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._executor.eager_enabled = False
            self.connected.clear()
            self._cancel_timers()
            for task in work:
                task.cancel()
            call.cancel()
            results = await asyncio.gather(*work, return_exceptions=True)
            self._outbox.requeue()
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, _StreamEnded):
                raise result

    async def _read(self, call: _Call) -> None:
        while True:
            response = await call.read()
            if not isinstance(response, work_pb2.WorkResponse):
                raise _StreamEnded
            if self._was_paused():
                logger.warning("this process was paused for longer than a lease, so the stream is reopened")
                raise _StreamEnded
            self._handle(response)
            if response.reconnect:
                raise _StreamEnded

    async def _write(self, call: _Call) -> None:
        sequence = 1
        # If the call ends during a write, the reader learns of it, with the reason.
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                await self._outbox.wait()
                if self._finishing:
                    await call.done_writing()
                    return
                sequence += 1
                await call.write(self._outbox.take(sequence))

    def _handle(self, response: work_pb2.WorkResponse) -> None:
        self._executor.clock.sync(response)
        # Slices, because a loop over a message's own field costs an IndexError at the end.
        for assignment in response.assignments[:]:
            self._accept(assignment)
        sequence = response.acknowledged_sequence
        if sequence:
            self._troubles.refusals = 0
            self._outbox.acknowledge(sequence)
        if response.ping:
            self._outbox.pong(response.ping)
        if response.resync:
            self._outbox.resync()
        for termination in response.terminations[:]:
            self._executor.terminate(termination)
        for loss in response.losses[:]:
            # If the server cannot know the token yet, this loss is not final: the acknowledgement decides.
            if not self._outbox.is_unconfirmed(loss.token):
                for token in self._outbox.drop(loss.token):
                    self._executor.lose(token, loss.reason)

    def _was_paused(self) -> bool:
        """Note that this process is running; return whether it was stopped or blocked for a whole lease.

        Node tasks that were sent meanwhile, and are read only now, may have run elsewhere.
        """
        now = asyncio.get_running_loop().time()
        self._paused = self._paused or now - self._last_seen > self._lease
        self._last_seen = now
        return self._paused

    def _accept(self, assignment: work_pb2.NodeTaskAssignment) -> None:
        token = assignment.token
        if self._outbox.remembers(token):
            self._outbox.assigned_again(token)
            return
        if self._draining and token not in self._executor.held:
            self._outbox.give_back(token)
            return
        self._executor.start(assignment)
        if self._naming is None:
            self._naming = asyncio.get_running_loop().call_later(NAMING_DELAY, self._renew_unnamed_tokens)

    def _hello(self) -> work_pb2.WorkRequest:
        hello = work_pb2.WorkerHello(
            worker_id=self._identity.worker_id,
            incarnation=self._identity.incarnation,
            node_types=self._identity.node_types,
            # A hello must offer some capacity; `draining`, here and in later messages, takes it back.
            capacity=1 if self._draining else self._identity.capacity,
            held_tokens=[*self._executor.name_held_tokens(), *self._outbox.outcome_tokens()],
            offers=self._offers,
        )
        return work_pb2.WorkRequest(hello=hello, sequence=1, draining=self._draining)

    def _welcome(self, welcome: work_pb2.WorkerWelcome) -> None:
        logger.info("connected as %s, session %s", self._identity.worker_id, welcome.session)
        for warning in welcome.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                logger.warning("%s", warning)
        self._troubles.logged = False
        self.connected.set()
        self._executor.eager_enabled = not self._draining
        self._lease, self._paused = seconds_of(welcome.lease) or math.inf, False
        self._last_seen = asyncio.get_running_loop().time()
        self._schedule_renewal(seconds_of(welcome.renew_interval) or _RENEW_INTERVAL)

    def _renew_unnamed_tokens(self) -> None:
        self._naming = None
        if not all(attempt.named for attempt in self._executor.held.values()):
            self._outbox.renew()

    def _schedule_renewal(self, interval: float) -> None:
        def renew() -> None:
            self._was_paused()
            if self._executor.held:
                self._outbox.renew()
            self._schedule_renewal(interval)

        self._renewal = asyncio.get_running_loop().call_later(interval, renew)

    def _cancel_timers(self) -> None:
        for timer in (self._naming, self._renewal):
            if timer is not None:
                timer.cancel()
        self._naming = self._renewal = None

    def _note(self, error: grpc.aio.AioRpcError) -> None:
        """Log once that the stream is lost. Raises SessionReplaced or WorkerRefused to end this worker."""
        if reason_of(error) == "SESSION_REPLACED":
            raise SessionReplaced(
                f'another process has connected as worker "{self._identity.worker_id}", so this one stops: '
                "give every process an id of its own, or none"
            )
        self._troubles.note(error)


class _StreamEnded(Exception):
    """The server ended the stream without an error, or told the worker to open another."""
