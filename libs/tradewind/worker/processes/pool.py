"""The processes that a worker has for nodes, and how nodes share them."""

import asyncio
import logging
from collections.abc import Mapping

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.server.side_tasks import SideTasks
from tradewind.worker.attempt import Attempt
from tradewind.worker.errors import NodeFault
from tradewind.worker.failures import fault_of
from tradewind.worker.outputs import Ending
from tradewind.worker.processes import frames
from tradewind.worker.processes.node_process import NodeProcess, NotBegun
from tradewind.worker.processes.targets import Target
from tradewind.worker.stopping import NodeStopExecution

logger = logging.getLogger("tradewind.worker")

ABANDONED_GRACE = 1.0
"""Seconds that a node has to end once nobody waits for its attempt; then its process is ended."""
EXIT_TIMEOUT = 5.0
"""Seconds within which a killed process is gone, unless the system itself holds it."""


class ProcessPool:
    """Up to `capacity` processes, started as needed and reused; further nodes wait for their turn."""

    def __init__(self, capacity: int, targets: Mapping[str, Target]) -> None:
        """`targets` says where to find each node, by its type."""
        self._targets = targets
        self._slots = asyncio.Semaphore(capacity)
        self._idle: list[NodeProcess] = []
        self._processes: set[NodeProcess] = set()
        self._retiring = SideTasks()
        self._closed = False

    async def run(
        self, attempt: Attempt, node_type: str, config_json: str = "", secrets: Mapping[str, str] | None = None
    ) -> Ending:
        """Run the attempt's node in a process and return what it emits.

        `config_json` is its config with secrets filled in, if it refers to any. Raises NodeFault for what the node
        raised, or PROCESS_DIED; NodeStopExecution when it stopped. A process that does not become usable again is ended
        and keeps its slot until then.
        """
        target = self._targets[node_type]
        run = frames.Run(
            attempt.assignment.SerializeToString(),
            target.module,
            target.name,
            config_json,
            dict(secrets or {}),
            attempt.traceparent,
        )
        await self._slots.acquire()
        process = None
        try:
            while True:
                process, fresh = await self._acquire()
                try:
                    return _outcome(attempt, await process.run(attempt, run))
                except NotBegun as error:
                    if fresh:
                        raise NodeFault(
                            "PROCESS_DIED",
                            f"the node could not begin: its process {error}; the worker's output may say why",
                        ) from None
                    # It died while idle, which is not this node's fault; a stop sent to it may have been lost.
                    self._processes.discard(process)
                    if attempt.stop is not None:
                        raise attempt.stop.exception() from None
        finally:
            self._release(process)

    async def close(self) -> None:
        """End every process, idle ones gracefully, and wait until they are gone."""
        self._closed = True
        for process in self._idle:
            process.release()
        self._idle.clear()
        if self._processes:
            waits = [asyncio.create_task(process.wait()) for process in self._processes]
            await asyncio.wait(waits, timeout=ABANDONED_GRACE)
            for process in self._processes:
                if not process.ended:
                    process.kill()
            await asyncio.wait(waits, timeout=EXIT_TIMEOUT)
            for wait in waits:
                wait.cancel()
        await self._retiring.end()

    async def _acquire(self) -> tuple[NodeProcess, bool]:
        while self._idle:
            process = self._idle.pop()
            if process.usable:
                return process, False
            self._processes.discard(process)
        try:
            process = await NodeProcess.start()
        except OSError as error:
            raise NodeFault("PROCESS_DIED", f"no process could be started for the node: {error}") from None
        self._processes.add(process)
        return process, True

    def _release(self, process: NodeProcess | None) -> None:
        if process is not None and process.usable:
            self._idle.append(process)
            self._slots.release()
        elif process is None or process.ended:
            if process is not None:
                self._processes.discard(process)
            self._slots.release()
        else:
            self._retiring.begin(self._retire(process))

    async def _retire(self, process: NodeProcess) -> None:
        try:
            await process.wait_for_reply(ABANDONED_GRACE)
            if process.usable and not self._closed:
                self._idle.append(process)
                return
            if process.busy:
                process.force()
            else:
                process.kill()
            await process.wait_killed(EXIT_TIMEOUT)
            if not process.ended:
                logger.error("process %s does not end on SIGKILL; another one replaces it", process.pid)
            self._processes.discard(process)
        finally:
            self._slots.release()


def _outcome(attempt: Attempt, reply: frames.Reply) -> Ending:
    if isinstance(reply, frames.Completed):
        attempt.stop_seen = attempt.stop_seen or reply.stop_seen
        return reply.ending
    if isinstance(reply, frames.Stopped):
        attempt.stop_seen = True
        raise NodeStopExecution(reply.reason, reply.source)
    attempt.stop_seen = attempt.stop_seen or reply.stop_seen
    raise fault_of(work_pb2.NodeTaskFailure.FromString(reply.failure))
