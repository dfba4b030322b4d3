"""Runs `tradewind ...`: in this process, in a process of its own, or in one at a terminal."""

import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from tradewind.cli.app import app

COMMAND = [sys.executable, "-m", "tradewind.cli"]


@dataclass(frozen=True)
class Ran:
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str = ""

    @property
    def json(self) -> Any:
        """Stdout as one JSON value."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """The lines of stdout."""
        return self.out.splitlines()


class Shell:
    """Runs commands."""

    def __call__(self, *arguments: str, input: str | None = None, ends: int = 0) -> Ran:
        """Run a command in this process, with piped output; it must exit with `ends`."""
        result = CliRunner().invoke(app, list(arguments), input=input, prog_name="tradewind", catch_exceptions=False)
        ran = Ran(result.exit_code, result.stdout, result.stderr)
        assert ran.code == ends, f"exit code {ran.code}, not {ends}\n{ran.out}\n{ran.err}"
        return ran

    def process(self, *arguments: str, timeout: float = 60) -> Ran:
        """Run a command in a process of its own, with piped output."""
        ended = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=timeout)
        return Ran(ended.returncode, ended.stdout, ended.stderr)

    def at_terminal(self, *arguments: str, typed: str = "", term: str = "xterm-256color", columns: int = 120) -> Ran:
        """Run a command in a process of its own at a terminal of so many columns, with `typed` typed ahead."""
        master, slave = pty.openpty()
        environment = {**os.environ, "TERM": term, "COLUMNS": str(columns), "LINES": "40"}
        process = subprocess.Popen([*COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        os.write(master, typed.encode())
        shown = b""
        with os.fdopen(master, "rb", buffering=0) as screen:
            while True:
                try:
                    some = screen.read(65536)
                except OSError:
                    # Linux reports this when the last writer has gone.
                    break
                if not some:
                    break
                shown += some
        return Ran(process.wait(timeout=60), shown.decode(errors="replace"))
