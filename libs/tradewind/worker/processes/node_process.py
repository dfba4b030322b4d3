"""One process for nodes, as seen by the worker."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Self

import msgspec

from tradewind.worker.attempt import Attempt
from tradewind.worker.errors import NodeFault
from tradewind.worker.processes import frames
from tradewind.worker.stopping import Stop, StopKind

logger = logging.getLogger("tradewind.worker")

START = Path(__file__).with_name("start.py")
KILL_DELAY = 1.0
"""Seconds between interrupting a node and SIGKILL."""
_ABANDONED = Stop(StopKind.LEASE_LOST, "the worker no longer waits for the node")
LAST_WORDS = 1.0
"""Seconds for reading what a process sent before it ended: processes that it forked may hold its socket open."""


class NotBegun(Exception):
    """The process ended before it took the node."""


class NodeProcess:
    """Runs one node at a time. The process dies with the worker, and leads a process group, which is killed as one."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._reader = reader
        self._writer = writer
        self._attempt: Attempt | None = None
        self._begun = False
        self._reply: asyncio.Future[frames.Reply] | None = None
        self._forced = False
        self._broken = ""
        self._killing: asyncio.TimerHandle | None = None
        self._killed = asyncio.Event()
        self._ended = asyncio.Event()
        self._exit_code = 0
        self._reading = asyncio.create_task(self._read())
        self._ending: asyncio.Task[None] | None = None
        threading.Thread(target=self._watch, name=f"tradewind-process-{process.pid}", daemon=True).start()

    @classmethod
    async def start(cls) -> Self:
        """Start a process. Raises OSError when the system has no room for one."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                ours.setblocking(False)
                reader, writer = await asyncio.open_unix_connection(sock=ours)
            except BaseException:
                ours.close()
                raise
            try:
                process = _spawn(theirs.fileno())
            except BaseException:
                writer.close()
                raise
        root = logging.getLogger()
        greeting = {"path": [str(entry) for entry in sys.path], "log_level": root.level if root.handlers else None}
        writer.write(frames.pack_bytes(json.dumps(greeting).encode()))
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether it can take a node now."""
        return not self.busy and not self._forced and self._ending is None

    @property
    def busy(self) -> bool:
        """Whether it has a node without a reply yet."""
        return self._attempt is not None

    @property
    def ended(self) -> bool:
        """Whether the process no longer exists."""
        return self._ended.is_set()

    async def run(self, attempt: Attempt, run: frames.Run) -> frames.Reply:
        """Run a node in a usable process and return how it ended; its progress and logs go to the attempt's reports.

        Raises NotBegun when the process ended before it took the node, NodeFault PROCESS_DIED when it ended while
        running it, and the attempt's stop when it was ended because of that.
        """
        self._attempt = attempt
        self._begun = False
        self._reply = self._loop.create_future()
        attempt.process = self
        self._writer.write(frames.pack(run))
        try:
            # Shielded: the reply is still awaited when this attempt is abandoned.
            reply = await asyncio.shield(self._reply)
        except asyncio.CancelledError:
            if not self._reply.done():
                self.request_stop(attempt.token, attempt.stop or _ABANDONED)
            raise
        finally:
            attempt.process = None
        return reply

    def request_stop(self, token: str, stop: Stop) -> None:
        """Tell the node to stop."""
        if self._ending is None:
            self._writer.write(frames.pack(frames.Stop(token, stop.reason, stop.source)))

    def force(self) -> None:
        """End the process: interrupt its node now, SIGKILL a moment later. It takes no more nodes."""
        if not self._forced:
            self._forced = True
            if self._ending is None:
                # The process sends itself SIGTERM: from here, the signal could overtake the stop that it is to raise.
                self._writer.write(frames.pack(frames.Interrupt()))
            self._killing = self._loop.call_later(KILL_DELAY, self.kill)

    def kill(self) -> None:
        """End the process, and whatever it has started, at once."""
        self._forced = True
        if self._ending is None:
            self._kill_group()
            self._process.kill()
        self._killed.set()

    def release(self) -> None:
        """Let an idle process end by itself."""
        self._forced = True
        self._writer.close()

    async def wait(self) -> None:
        """Wait until the process has ended."""
        await self._ended.wait()

    async def wait_killed(self, timeout: float) -> None:
        """Wait until it has ended, `timeout` seconds at most from the moment in which it is killed."""
        await self._killed.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self.wait()

    async def wait_for_reply(self, timeout: float) -> None:
        """Wait until it has replied or ended, `timeout` seconds at most."""
        if self._reply is not None:
            await asyncio.wait((self._reply,), timeout=timeout)

    async def _read(self) -> None:
        try:
            while True:
                self._handle(await frames.read_from_child(self._reader))
        except (EOFError, OSError):
            self._handle_lost_connection("closed its connection to the worker")
        except (ValueError, msgspec.MsgspecError) as error:
            self._handle_lost_connection(f"sent something that the worker does not understand ({error})")

    def _handle(self, frame: frames.FromChild) -> None:
        attempt = self._attempt
        if isinstance(frame, frames.Begun):
            self._begun = True
        elif isinstance(frame, frames.Progress):
            if attempt is not None and attempt.token == frame.token and not attempt.settled:
                attempt.reports.progress(frame.token, frame.percent, frame.message, frame.step)
        elif isinstance(frame, frames.Log):
            if attempt is not None and attempt.token == frame.token and not attempt.settled:
                attempt.reports.log(frame.token, frame.level, frame.message, frame.created_ns)
        elif isinstance(frame, frames.Question):
            self._forward(frame)
        elif self._reply is not None and not self._reply.done():
            self._attempt = None
            self._reply.set_result(frame)

    def _forward(self, question: frames.Question) -> None:
        """Pass the node's question on to the scheduler."""
        memories = self._attempt.memories if self._attempt is not None else None
        if memories is None:
            answer = frames.Answer(question.number, b"", "UNAVAILABLE", "no scheduler keeps variables for this node")
            self._writer.write(frames.pack(answer))
            return

        def forward_answer(answer: "Future[bytes]") -> None:
            self._loop.call_soon_threadsafe(self._send_answer, question.number, answer)

        memories.ask(question.method, question.request).add_done_callback(forward_answer)

    def _send_answer(self, number: int, answer: "Future[bytes]") -> None:
        if self._ending is not None or answer.cancelled():
            return
        fault = answer.exception()
        if fault is None:
            frame = frames.Answer(number, answer.result(), "", "")
        else:
            frame = frames.Answer(number, b"", getattr(fault, "reason", "INTERNAL"), str(fault))
        self._writer.write(frames.pack(frame))

    def _handle_lost_connection(self, reason: str) -> None:
        # A process that is ending closes its connection too, so give it time to end.
        if not self._ended.is_set() and self._ending is None:
            self._loop.call_later(LAST_WORDS, self._kill_broken, reason)

    def _kill_broken(self, reason: str) -> None:
        if self._ending is None:
            self._broken = reason
            self.kill()

    def _watch(self) -> None:
        """Wait for the process to end, in a thread, so that no loop and no child watcher is needed."""
        if hasattr(os, "waitid"):
            # Until the process is reaped, its group number cannot belong to anybody else's processes.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
                self._kill_group()
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(self._exited, code)

    def _exited(self, code: int) -> None:
        self._exit_code = code
        self._ending = asyncio.create_task(self._end())

    async def _end(self) -> None:
        await asyncio.wait((self._reading,), timeout=LAST_WORDS)
        self._reading.cancel()
        self._writer.close()
        if self._killing is not None:
            self._killing.cancel()
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(self._death_error())
            self._reply.exception()  # possibly nobody waits any more
        self._killed.set()
        self._ended.set()

    def _death_error(self) -> BaseException:
        attempt = self._attempt
        if attempt is not None and attempt.stop is not None and self._forced:
            return attempt.stop.exception()
        if not self._begun:
            return NotBegun(self._describe_exit())
        return NodeFault("PROCESS_DIED", f"the process of the node {self._describe_exit()}")

    def _describe_exit(self) -> str:
        code = self._exit_code
        if self._broken:
            return f"{self._broken}, so it was killed"
        if code >= 0:
            return f"ended with exit code {code}"
        hint = "; if nobody sent it, the machine may have run out of memory" if code == -signal.SIGKILL else ""
        return f"died of signal {_signal_name(-code)}{hint}"

    def _kill_group(self) -> None:
        """Kill the process and everything that its nodes have started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _spawn(descriptor: int) -> subprocess.Popen[bytes]:
    # With nothing to call between fork and exec, this is a vfork: fast, and safe with gRPC's threads.
    return subprocess.Popen(
        [sys.executable, str(START), str(os.getpid()), str(descriptor)],
        stdin=subprocess.DEVNULL,
        stdout=2,  # what nodes print goes where the worker's messages go
        pass_fds=(descriptor,),
        start_new_session=True,
    )


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return str(number)
