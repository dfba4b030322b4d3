"""Starting and ending the processes of a benchmark: each dies with its owner and is ended by pid, never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from benchmarks.measure import process_tree
from tradewind.server.redis.owned_process import owned

ROOT = Path(__file__).resolve().parent.parent

_POLL_S = 0.02


def spawn(
    command: Sequence[str],
    *,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | IO[str] | None = None,
    stderr: int | IO[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start `command` in the project's root with `environment` added to this process's own.

    The peers' environment does not have the project installed, so its libraries come first on the path. The kernel ends
    the process if this one dies without doing so. Call this from the main thread: the kernel watches the thread.
    """
    path = filter(None, (str(ROOT / "libs"), os.environ.get("PYTHONPATH")))
    return subprocess.Popen(
        owned(command),
        cwd=ROOT,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **(environment or {})},
        text=True,
    )


def end(process: subprocess.Popen[str], grace_s: float = 10.0) -> None:
    """End `process` and all its descendants: SIGTERM to the process, SIGKILL to whatever is left after the grace."""
    tree = process_tree([process.pid]) if process.poll() is None else {}
    if tree:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    deadline = time.monotonic() + grace_s
    while left := [
        pid for pid, stat in process_tree(tree).items() if pid in tree and stat.started == tree[pid].started
    ]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {left} of {process.args!r} did not end; end them by hand")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()  # reaps it, so that it leaves the tree
        time.sleep(_POLL_S)
