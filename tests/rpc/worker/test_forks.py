"""Processes that nodes fork: they end where they leave the node, and those that end themselves work as anywhere."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from tests.rpc.worker.engine import Engine
from tests.rpc.worker.test_process import worker_process

NODES = """
import asyncio, multiprocessing, os, subprocess
from concurrent.futures import ProcessPoolExecutor
from tradewind.worker import node

def exit_code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def fork_and_leave(how: str) -> int:
    child = os.fork()
    if child:
        return exit_code_of(child)
    if how == "exits":
        raise SystemExit(3)
    if how == "fails":
        raise ValueError("failed in the child")
    return -1

@node("leaves_thread")
def leaves_thread(how: str) -> int:
    return fork_and_leave(how)

@node("leaves_loop")
async def leaves_loop(how: str) -> int:
    return fork_and_leave(how)

@node("leaves_task")
async def leaves_task() -> int:
    async def leave() -> int:
        return fork_and_leave("returns")

    return await asyncio.create_task(leave())

@node("leaves_behind")
async def leaves_behind() -> int:
    async def leave() -> None:
        fork_and_leave("returns")

    kept.append(asyncio.create_task(leave()))
    return 1

kept = []

@node("leaves_process", process=True)
def leaves_process(how: str) -> int:
    return fork_and_leave(how)

@node("awaits")
async def awaits() -> int:
    child = os.fork()
    if not child:
        await asyncio.sleep(0)
        os._exit(0)
    return exit_code_of(child)

def use_processes() -> list[int]:
    forking = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=forking) as executor:
        numbers = list(executor.map(abs, [-1, -2]))
    with forking.Pool(2) as pool:
        numbers += pool.map(abs, [-3])
    numbers.append(subprocess.run(["sh", "-c", "exit 4"], preexec_fn=os.getpid).returncode)
    return numbers

@node("uses_in_thread")
def uses_in_thread() -> list[int]:
    return use_processes()

@node("uses_on_loop")
async def uses_on_loop() -> list[int]:
    children = [await asyncio.create_subprocess_exec("true") for _ in range(100)]
    assert not any([await child.wait() for child in children])
    return use_processes()

@node("uses_in_process", process=True)
def uses_in_process() -> list[int]:
    return use_processes()
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """A folder with a module of nodes."""
    (tmp_path / "crafts.py").write_text(NODES)
    return tmp_path


@pytest.mark.parametrize("kind", ["leaves_thread", "leaves_loop", "leaves_process"])
async def test_forked_child_ends_where_it_leaves_the_code_of_its_node(engine: Engine, nodes: Path, kind: str) -> None:
    exit_codes = {"exits": 3, "fails": 1, "returns": 1}
    async with worker_process(nodes, "crafts", address=engine.address) as worker:
        session = await engine.session()
        for how in exit_codes:
            session.assign(kind, how, config_json=json.dumps({"how": how}))
        await session.until_completed(*exit_codes)
        worker.send_signal(signal.SIGTERM)
        _, stderr = await asyncio.wait_for(worker.communicate(), 30)

    assert {each.token: json.loads(each.outputs[0].value_json) for each in session.completions} == exit_codes
    assert session.failures == []
    assert b"ValueError: failed in the child\n" in stderr
    assert stderr.count(b"which a node forked, has left the code of the node") == 2


@pytest.mark.parametrize("kind", ["awaits", "leaves_task", "leaves_behind"])
async def test_forked_child_that_returns_to_the_loop_of_the_worker_runs_and_reports_nothing(
    engine: Engine, nodes: Path, kind: str
) -> None:
    async with worker_process(nodes, "crafts", address=engine.address):
        session = await engine.session()
        session.assign(kind, "t1", "t2", "t3", "t4")
        await session.until_completed("t1", "t2", "t3", "t4")

    assert [each.outputs[0].value_json for each in session.completions] == ["1"] * 4


@pytest.mark.parametrize("kind", ["uses_in_thread", "uses_on_loop", "uses_in_process"])
async def test_nodes_use_pools_and_subprocesses(engine: Engine, nodes: Path, kind: str) -> None:
    async with worker_process(nodes, "crafts", address=engine.address):
        session = await engine.session()
        session.assign(kind, "t1", "t2")
        await session.until_completed("t1", "t2")

    assert [json.loads(each.outputs[0].value_json) for each in session.completions] == [[1, 2, 3, 4]] * 2
