"""Node types for tests of workers under a whole stack."""

import os
import signal
import time
from pathlib import Path

from tradewind.worker import Context, NodeStopExecution, node


@node("squares", outputs=["sum"], process=True)
def squares(ctx: Context, count: int = 4) -> int:
    """Add up squares, in a process."""
    ctx.progress(50, "half")
    ctx.log("adding %s squares", count)
    return sum(number * number for number in range(count))


@node("double", outputs=["doubled"])
async def double(sum: int) -> int:
    """Double the output of a process."""
    return sum * 2


@node("crashes", outputs=["nothing"], process=True)
def crashes(ctx: Context) -> None:
    """Die from a signal."""
    ctx.log("about to")
    os.kill(os.getpid(), signal.SIGKILL)


@node("deaf_process", outputs=["nothing"], process=True)
def deaf_process(file: str) -> None:
    """Write the process's id to `file`, and ignore everything."""
    begin(file)
    while True:
        try:
            time.sleep(600)
        except NodeStopExecution:
            continue


@node("deaf_thread", outputs=["nothing"])
def deaf_thread(file: str) -> None:
    """Ignore everything, in a thread."""
    begin(file)
    while not Path(f"{file}.end").exists():
        time.sleep(0.01)


def begin(file: str) -> None:
    """Write this process's id to `file`, completely or not at all."""
    Path(f"{file}.new").write_text(str(os.getpid()), encoding="utf-8")
    Path(f"{file}.new").rename(file)
