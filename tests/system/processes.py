"""Processes of the real commands; their output goes to a file, and each is ended by its id."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tests.ports import free_port
from tests.waiting import until
from tradewind.cli.app import app

ROOT = Path(__file__).parents[2]
TRADEWIND = [sys.executable, "-m", "tradewind.cli"]
NODES = "tests.system.nodes"


class Process:
    """A command that runs until it is stopped."""

    def __init__(self, log: Path, *arguments: str, address: str = "", cwd: Path = ROOT) -> None:
        self.log = log
        environment = dict(os.environ)
        if address:
            environment["TRADEWIND_ADDRESS"] = address
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [*TRADEWIND, *arguments],
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def output(self) -> str:
        """The output so far."""
        return self.log.read_text(encoding="utf-8")

    async def wait_for_output(self, text: str) -> None:
        """Wait until the process has printed a text."""
        await until(lambda: text in self.output or self._process.poll() is not None, f"{text!r} is printed", timeout=30)
        assert text in self.output, f"ended with {self._process.poll()}:\n{self.output}"

    async def wait_for_exit(self, timeout: float = 30) -> int:
        """Wait until the process has ended, and return its exit code."""
        await until(
            lambda: self._process.poll() is not None,
            f"process {self.pid}, with its output in {self.log}, has ended",
            timeout=timeout,
        )
        return self._process.returncode

    async def interrupt(self, timeout: float = 30) -> int:
        """Press Ctrl-C and return the exit code."""
        self._process.send_signal(signal.SIGINT)
        return await self.wait_for_exit(timeout)

    async def kill(self) -> None:
        """Kill the process, as a crash would."""
        self._process.kill()
        await self.wait_for_exit()

    def close(self) -> None:
        """End the process, whatever state it is in."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(timeout=30)


class Processes:
    """Starts commands in a directory and ends them all."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._started: list[Process] = []

    async def start_stack(self, *arguments: str, port: int = 0) -> tuple[Process, str]:
        """Run `tradewind up` over the directory; return the process and its address."""
        process = self.start("up", "--port", str(port or free_port()), "--data", str(self.home / "data"), *arguments)
        await process.wait_for_output("is up at ")
        address = process.output.rpartition("is up at ")[2].partition(",")[0]
        return process, address

    async def start_worker(self, address: str, *arguments: str) -> Process:
        """Run `tradewind worker` with the nodes of these tests; return once it is connected."""
        process = self.start("worker", NODES, *arguments, address=address)
        await process.wait_for_output("connected as")
        return process

    def start(self, *arguments: str, address: str = "", cwd: Path = ROOT) -> Process:
        """Run any command."""
        process = Process(self.home / f"{len(self._started)}.log", *arguments, address=address, cwd=cwd)
        self._started.append(process)
        return process

    def close(self) -> None:
        """End them all."""
        for process in reversed(self._started):
            process.close()


@contextmanager
def running_processes(home: Path) -> Iterator[Processes]:
    """Yield an object that starts processes; end them afterwards."""
    processes = Processes(home)
    try:
        yield processes
    finally:
        processes.close()


class Shell:
    """Runs commands against a stack to completion, in this process: a new process takes most of a second to start."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def __call__(self, *arguments: str, input: str | None = None, exit_code: int = 0) -> str:
        """Run a command, which must exit with `exit_code`, and return its output (stderr if stdout has none)."""
        # A command has its own event loop, which cannot run inside that of the test.
        result = await asyncio.to_thread(
            CliRunner().invoke,
            app,
            ["--address", self.address, *arguments],
            input=input,
            prog_name="tradewind",
            catch_exceptions=False,
        )
        assert result.exit_code == exit_code, f"exit code {result.exit_code}:\n{result.stdout}\n{result.stderr}"
        return result.stdout or result.stderr

    async def json(self, *arguments: str, input: str | None = None, exit_code: int = 0) -> Any:
        """Run a command with `-o json` and return its output."""
        return json.loads(await self(*arguments, "-o", "json", input=input, exit_code=exit_code))
