"""A worker process and the processes of its nodes: how they end together, and their output."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.rpc.worker.engine import Engine, Session
from tests.rpc.worker.test_process import worker_process
from tests.rpc.worker.test_process_stops import alive
from tests.waiting import until

NODES = """
import logging, multiprocessing, os, signal, time
from pathlib import Path
from tradewind.worker import Context, node

@node("finishes", process=True)
def finishes(ctx: Context, flag: str) -> str:
    ctx.progress(1, str(os.getpid()))
    while not Path(flag).exists():
        time.sleep(0.002)
    return "done"

@node("talks", process=True)
def talks() -> None:
    print("printed by the node")
    logging.getLogger("shop").info("logged by the node")

@node("forks")
def forks() -> int | None:
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(20,), daemon=True)
    child.start()
    child.terminate()
    child.join(5)
    return child.exitcode

@node("counts_threads")
def counts_threads() -> int:
    child = os.fork()
    if child == 0:
        os._exit(len(os.listdir("/proc/self/task")))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

@node("segfaults", process=True)
def segfaults() -> None:
    import ctypes
    ctypes.string_at(0)
"""


async def begun(session: Session, *tokens: str) -> list[int]:
    """Wait until the nodes run, and return their processes."""

    def running() -> dict[str, int]:
        return {each.token: int(each.message) for request in session.requests for each in request.progress}

    await until(lambda: running().keys() == set(tokens), f"{tokens} run")
    return list(running().values())


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """A folder with a module of nodes."""
    (tmp_path / "crafts.py").write_text(NODES)
    return tmp_path


async def test_no_process_outlives_killed_worker(engine: Engine, nodes: Path) -> None:
    options = ("crafts", "--processes", "2")
    async with worker_process(nodes, *options, address=engine.address) as worker:
        session = await engine.session()
        session.assign("finishes", "t1", "t2", config_json=json.dumps({"flag": str(nodes / "never")}))
        pids = await begun(session, "t1", "t2")
        assert all(map(alive, pids))
        worker.kill()
        await until(lambda: not any(map(alive, pids)), "the processes of its nodes are gone")


async def test_sigterm_to_whole_process_group_lets_nodes_finish(engine: Engine, nodes: Path) -> None:
    async with worker_process(nodes, "crafts", "--grace", "30", address=engine.address) as worker:
        session = await engine.session()
        session.assign("finishes", "t1", config_json=json.dumps({"flag": str(nodes / "flag")}))
        (pid,) = await begun(session, "t1")
        worker.send_signal(signal.SIGTERM)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        await until(lambda: any(request.draining for request in session.requests), "the worker leaves")
        (nodes / "flag").touch()
        assert await asyncio.wait_for(worker.wait(), 30) == 0

    assert [each.outputs[0].value_json for each in session.completions] == ['"done"']
    assert session.given_back == []
    assert not alive(pid)


async def test_sigterm_gives_back_nodes_that_outlast_grace(engine: Engine, nodes: Path) -> None:
    async with worker_process(nodes, "crafts", "--grace", "0.1", address=engine.address) as worker:
        session = await engine.session()
        session.assign("finishes", "t1", config_json=json.dumps({"flag": str(nodes / "never")}))
        (pid,) = await begun(session, "t1")
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(worker.wait(), 30) == 0

    assert (session.completions, session.given_back) == ([], ["t1"])
    assert not alive(pid)


async def test_signal_to_forked_child_of_node_does_not_reach_worker(engine: Engine, nodes: Path) -> None:
    async with worker_process(nodes, "crafts", address=engine.address):
        session = await engine.session()
        session.assign("forks", "t1", "t2")
        await session.until_completed("t1", "t2")

    assert [each.outputs[0].value_json for each in session.completions] == [str(-signal.SIGTERM)] * 2
    assert not any(request.draining for request in session.requests)


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
async def test_grpc_starts_no_threads_in_forked_child_of_node(engine: Engine, nodes: Path) -> None:
    async with worker_process(nodes, "crafts", address=engine.address):
        session = await engine.session()
        session.assign("counts_threads", *(tokens := [f"t{number}" for number in range(20)]))
        await session.until_completed(*tokens)

    assert {each.outputs[0].value_json for each in session.completions} == {"1"}


async def test_output_and_logs_of_process_nodes_go_to_stderr_of_worker(engine: Engine, nodes: Path) -> None:
    async with worker_process(nodes, "crafts", address=engine.address) as worker:
        session = await engine.session()
        session.assign("talks", "t1")
        await session.until_completed("t1")
        session.assign("segfaults", "t2")
        await until(lambda: session.failures, "the second is reported")
        worker.send_signal(signal.SIGTERM)
        _, stderr = await asyncio.wait_for(worker.communicate(), 30)

    assert "printed by the node\n" in stderr.decode()
    assert "INFO    logged by the node\n" in stderr.decode()
    assert "Fatal Python error: Segmentation fault" in stderr.decode()
    assert session.failures[0].error.message == "the process of the node died of signal SIGSEGV (11)"


@pytest.mark.parametrize("logging", ["", "import logging; logging.basicConfig(level=logging.ERROR)\n"])
async def test_program_that_runs_worker_logs_unless_it_has_configured_logging(
    engine: Engine, tmp_path: Path, logging: str
) -> None:
    (tmp_path / "program.py").write_text(
        f"{logging}from tradewind.worker import Worker, node\n"
        '@node("idle")\n'
        "async def idle() -> None: ...\n"
        f'Worker([idle], address="{engine.address}", worker_id="w7").run()\n'
    )
    program = await asyncio.create_subprocess_exec(
        sys.executable, "program.py", cwd=tmp_path, stderr=asyncio.subprocess.PIPE
    )
    try:
        await engine.session()
    finally:
        program.send_signal(signal.SIGTERM)
        _, stderr = await asyncio.wait_for(program.communicate(), 30)

    assert ("INFO    connected as w7" in stderr.decode()) == (not logging)


async def test_module_that_runs_worker_on_import_gets_hint(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "crafts.py").write_text(
        "from tradewind.worker import Worker, node\n"
        '@node("pid", process=True)\n'
        "def pid() -> None: ...\n"
        f'Worker([pid], address="{engine.address}").run()\n'
    )
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", "import crafts", cwd=tmp_path)
    try:
        session = await engine.session()
        session.assign("pid", "t1")
        await until(lambda: session.failures, "the node is reported")
    finally:
        program.kill()
        await program.wait()

    assert 'put the code that runs the worker under if __name__ == "__main__"' in session.failures[0].error.message


async def test_worker_of_a_module_that_runs_another_on_import_ends_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "crafts.py").write_text(
        'from tradewind.worker import Worker, node\n@node("pid")\ndef pid() -> None: ...\nWorker([pid]).run()\n'
    )
    async with worker_process(tmp_path, "crafts", address="127.0.0.1:1") as worker:
        _, stderr = await asyncio.wait_for(worker.communicate(), 30)

    assert worker.returncode == 2
    assert 'put the code that runs the worker under if __name__ == "__main__"' in stderr.decode()
