"""A client's stream of runs: each begins when it comes in, and is answered when it is done, many to a message."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import grpc

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.server.errors import ErrorAnswers
from tradewind.server.interception import Context
from tradewind.server.side_tasks import SideTasks
from tradewind.server.streams import run_both
from tradewind.server.telemetry import valid_traceparent

MAX_OPEN = 10_000
_AT_ONCE = 100
"""How many runs of a message begin before other work has a turn."""
_ANSWER_BYTES = 1024 * 1024
_MAX_WAITING_BYTES = 16 * 1024 * 1024
_METHOD = "/tradewind.api.scheduler.v1.SchedulerService/StreamRuns"

RunOne = Callable[[pb2.RunFlowRequest, str], Awaitable[pb2.RunFlowResponse]]


class RunStream:
    """Serves one StreamRuns call; `run(request, traceparent)` answers one run, or raises an error."""

    def __init__(self, run: RunOne, errors: ErrorAnswers) -> None:
        self._run = run
        self._errors = errors
        self._open = SideTasks()
        self._answers: deque[tuple[pb2.StreamedRunAnswer, int]] = deque()
        self._waiting_bytes = 0
        self._answered = asyncio.Event()
        self._room = asyncio.Event()
        self._last_came = False

    async def serve(self, context: Context) -> None:
        """Read and write until the last answer is sent or the client has gone; cycles that have begun go on."""
        try:
            await run_both(context, self._read(context), self._write(context))
        finally:
            for task in self._open:
                task.cancel()

    async def _read(self, context: Context) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            for place, run in enumerate(message.runs, 1):
                if place % _AT_ONCE == 0:
                    await asyncio.sleep(0)
                # Answers that the client has not read count as well: until it reads them, nothing more begins.
                while len(self._open) + len(self._answers) >= MAX_OPEN or self._waiting_bytes > _MAX_WAITING_BYTES:
                    self._room.clear()
                    await self._room.wait()
                self._open.task(self._answer(run)).add_done_callback(self._closed)
        self._last_came = True
        self._answered.set()
        # The writer ends the call, with the last answer.
        await asyncio.Event().wait()

    async def _write(self, context: Context) -> None:
        while self._open or self._answers or not self._last_came:
            if not self._answers:
                self._answered.clear()
                await self._answered.wait()
                continue
            response = pb2.StreamRunsResponse()
            size = 0
            while self._answers and (not size or size + self._answers[0][1] <= _ANSWER_BYTES):
                answer, weight = self._answers.popleft()
                size += weight
                response.answers.append(answer)
            self._waiting_bytes -= size
            self._room.set()
            await context.write(response)

    async def _answer(self, run: pb2.StreamedRun) -> None:
        answer = pb2.StreamedRunAnswer(number=run.number)
        try:
            answer.response.CopyFrom(await self._run(run.request, valid_traceparent(run.traceparent)))
        except Exception as error:
            answer.error_status = self._errors.status_of(error, _METHOD).SerializeToString()
        weight = answer.ByteSize()
        self._waiting_bytes += weight
        self._answers.append((answer, weight))
        self._answered.set()

    def _closed(self, _task: asyncio.Task[None]) -> None:
        self._room.set()
        if self._last_came:
            self._answered.set()
