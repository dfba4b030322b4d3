"""A worker in another language: the one of examples/javascript, which shares only the contract with us."""

import json
import os
import shutil
import signal
import statistics
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from examples.momentum.nodes import months, price_feed
from tests.ports import free_port
from tests.rpc.worker.engine import started_engine
from tests.waiting import until
from tradewind.client import Client, CycleHandle, InvalidInput, NodeTaskRecord, NodeTaskStatus
from tradewind.flow import Flow, Retry
from tradewind.standalone import Standalone
from tradewind.worker import Context, Worker, node

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "javascript"
WORKER = Path(__file__).with_name("javascript_worker.js")

pytestmark = pytest.mark.skipif(
    (shutil.which("node") is None or not (EXAMPLE / "node_modules").is_dir())
    and os.environ.get("TRADEWIND_REQUIRE_NODE") != "1",
    reason="needs Node.js, and `npm install` in examples/javascript (a failure with TRADEWIND_REQUIRE_NODE=1)",
)

PATIENCE_S = 30


class Workers:
    """Starts workers in processes of their own."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "node.log"
        self._ledger = directory / "ledger"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, worker_id: str, address: str) -> subprocess.Popen[bytes]:
        """Start a worker with the nodes of these tests."""
        return self.start_script(WORKER, worker_id, address, str(self._ledger))

    def start_script(self, script: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a script."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                ["node", script, *arguments], env={**os.environ, **environment}, stdout=log, stderr=log
            )
        self._processes.append(process)
        return process

    @property
    def begun_attempts(self) -> list[str]:
        """The worker and the number of each attempt that has begun."""
        return self._ledger.read_text().splitlines() if self._ledger.exists() else []

    @property
    def output(self) -> str:
        """The output of the processes."""
        return self._log.read_text()

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()
            process.wait()


async def wait_for_exit(process: subprocess.Popen[bytes]) -> int:
    """Wait until a process has ended, and return its exit code."""
    await until(lambda: process.poll() is not None, "the worker has ended")
    return process.returncode


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    """Starts workers, and ends them when the test ends."""
    workers = Workers(tmp_path)
    yield workers
    workers.close()


@pytest_asyncio.fixture
async def client(stack: Standalone) -> AsyncIterator[Client]:
    """A client of a stack that has no worker yet."""
    async with Client(stack.address) as client:
        yield client


async def wait_for_workers(client: Client, count: int) -> None:
    """Wait until exactly `count` workers are registered."""

    async def registered() -> bool:
        return len([each async for each in client.list_workers()]) == count

    await until(registered, f"{count} workers are registered")


async def run_one(
    client: Client, node_type: str, config: Mapping[str, Any], timeout: str = "1m", retry: Retry | None = None
) -> CycleHandle:
    """Begin a cycle of a flow with a single node, `only`."""
    flow = Flow(node_type, "1h")
    flow.node("only", node_type, config, timeout=timeout, retry=retry)
    await client.register_flow(node_type, flow)
    return await client.run_flow(node_type)


async def task_of(client: Client, run: CycleHandle) -> NodeTaskRecord:
    """Wait until a cycle has ended, and return its only node task."""
    await run.wait(PATIENCE_S)
    return await client.get_node_task(f"{run.flow_id}:{run.cycle}:0:only")


async def test_the_example_runs_beside_a_python_worker(stack: Standalone, client: Client, workers: Workers) -> None:
    workers.start_script(EXAMPLE / "worker.js", TRADEWIND_ADDRESS=stack.address)
    async with Worker([price_feed], address=stack.address):
        await client.register_flow("calm", EXAMPLE / "flow.json")
        run = await client.run_flow("calm", inputs={"month": "2004-12"})
        outputs = await run.result(PATIENCE_S)
        described = await run.describe()
        shaking = await client.get_node_task(f"calm:{run.cycle}:0:shaking")

    at = [name for name, _ in months()].index("2004-12")
    window = [prices for _, prices in months()[at - 12 : at + 1]]
    expected = {
        share: statistics.stdev(after[share] / before[share] - 1 for before, after in pairwise(window))
        for share in window[0]
    }
    assert shaking.outputs["volatility"] == pytest.approx(expected)
    assert outputs == {"calmest": {"share": min(expected, key=expected.__getitem__)}}
    assert "4 of 5 shares have 12 months" in [line.message for line in described.logs]


async def test_flow_is_checked_against_declared_node_types(stack: Standalone, client: Client, workers: Workers) -> None:
    workers.start_script(EXAMPLE / "worker.js", TRADEWIND_ADDRESS=stack.address)
    await wait_for_workers(client, 1)
    definition = json.loads((EXAMPLE / "flow.json").read_text())
    definition["edges"][1]["source_handle"] = "volatilty"
    definition["nodes"][1]["config"]["months"] = 1

    with pytest.raises(InvalidInput) as refused:
        await client.register_flow("calm", definition)

    assert {each.path for each in refused.value.violations} == {"edges[1].source_handle", "nodes[1].config.months"}


async def test_inputs_and_secret_config_fill_node_parameters(
    stack: Standalone, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_SECRET_JOIN_KEY", "opened")
    workers.start("one", stack.address)
    flow = Flow("joined", "1h")
    join = flow.node("join", "join", {"key": {"$secret": "join-key"}})
    for name in ("a", "b"):
        flow.node(name, "linger")["attempt"] >> join["values"]
    join["never"] >> flow.node("skipped", "linger")["ms"]
    await client.register_flow("joined", flow)

    run = await client.run_flow("joined")
    await run.wait(PATIENCE_S)

    assert (await client.get_node_task(f"joined:{run.cycle}:0:join")).outputs == {"joined": "1-1 opened"}
    skipped = await client.get_node_task(f"joined:{run.cycle}:0:skipped")
    assert skipped.status is NodeTaskStatus.SKIPPED


async def test_failure_reports_thrown_error_and_is_retried_unless_fatal(
    stack: Standalone, client: Client, workers: Workers
) -> None:
    workers.start("one", stack.address)
    again = Retry(3, initial="10ms")

    failed = await task_of(client, await run_one(client, "fail", {}, retry=again))
    assert failed.error is not None
    assert (failed.status, failed.attempt) == (NodeTaskStatus.FAILED, 3)
    assert (failed.error.code, failed.error.type, failed.error.message) == ("NODE_ERROR", "RangeError", "out of range")

    fatal = await task_of(client, await run_one(client, "fail", {"fatal": True}, retry=again))
    assert (fatal.status, fatal.attempt) == (NodeTaskStatus.FAILED, 1)


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [("emit", "failed", "OUTPUT_TOO_LARGE"), ("throw", "failed", "NODE_ERROR"), ("log", "completed", None)],
)
async def test_text_larger_than_a_message_ends_no_stream(
    stack: Standalone, client: Client, workers: Workers, how: str, status: str, code: str | None
) -> None:
    """Everything that the worker runs is on that stream."""
    workers.start("one", stack.address)

    run = await run_one(client, "large", {"how": how, "mebibytes": 5})
    ended = await task_of(client, run)

    assert (ended.status, ended.error.code if ended.error else None) == (status, code)
    lines = [line.message async for line in client.list_logs("large", cycle=run.cycle)]
    assert any("x" * 1000 in line for line in lines) is (how != "emit")


async def test_text_that_is_no_unicode_ends_no_stream(stack: Standalone, client: Client, workers: Workers) -> None:
    workers.start("one", stack.address)

    run = await run_one(client, "halve", {})
    ended = await task_of(client, run)

    assert ended.error is not None
    assert (ended.error.type, ended.error.message) == ("\ufffd", "\ufffd")
    assert "\ufffd" in [line.message async for line in client.list_logs("halve", cycle=run.cycle)]


@pytest.mark.parametrize("node_type", ["linger", "deaf"])
async def test_node_fails_at_its_timeout(stack: Standalone, client: Client, workers: Workers, node_type: str) -> None:
    workers.start("one", stack.address)

    late = await task_of(client, await run_one(client, node_type, {"lingering": 1}, timeout="100ms"))

    assert late.error is not None
    assert (late.status, late.error.code) == (NodeTaskStatus.FAILED, "TIMEOUT")


async def test_stopped_node_is_terminated(stack: Standalone, client: Client, workers: Workers) -> None:
    workers.start("one", stack.address)
    run = await run_one(client, "linger", {"lingering": 1})
    await until(lambda: workers.begun_attempts, "the node has begun")

    await run.stop(reason="enough")

    stopped = await task_of(client, run)
    assert (stopped.status, stopped.reason) == (NodeTaskStatus.TERMINATED, "enough")


async def test_node_task_of_killed_worker_runs_again_elsewhere(
    stack: Standalone, client: Client, workers: Workers
) -> None:
    first = workers.start("one", stack.address)
    run = await run_one(client, "linger", {"lingering": 1})
    await until(lambda: workers.begun_attempts, "the node has begun")
    workers.start("two", stack.address)
    await wait_for_workers(client, 2)

    first.kill()

    assert (await task_of(client, run)).outputs == {"attempt": 2}
    assert workers.begun_attempts == ["one 1", "two 2"]


async def test_terminated_worker_finishes_its_node_task_and_leaves(
    stack: Standalone, client: Client, workers: Workers
) -> None:
    worker = workers.start("one", stack.address)
    run = await run_one(client, "linger", {"ms": 1500})
    await until(lambda: workers.begun_attempts, "the node has begun")

    worker.send_signal(signal.SIGTERM)

    async def drains() -> bool:
        return [each.status async for each in client.list_workers()] == ["draining"]

    await until(drains, "nobody counts on it any more")
    assert await wait_for_exit(worker) == 0
    assert (await task_of(client, run)).outputs == {"attempt": 1}
    assert [each async for each in client.list_workers()] == []


async def test_running_node_task_survives_server_restart(tmp_path: Path, workers: Workers) -> None:
    port = free_port()
    worker = workers.start("one", f"127.0.0.1:{port}")
    async with Standalone(data=tmp_path / "data", port=port) as stack, Client(stack.address) as client:
        run = await run_one(client, "linger", {"ms": 3000})
        await until(lambda: workers.begun_attempts, "the node has begun")
    async with Standalone(data=tmp_path / "data", port=port) as stack, Client(stack.address) as client:
        task = await task_of(client, client.cycle("linger", run.cycle))
        assert (task.status, task.outputs) == (NodeTaskStatus.COMPLETED, {"attempt": 1})
        worker.send_signal(signal.SIGTERM)
        assert await wait_for_exit(worker) == 0
    assert workers.begun_attempts == ["one 1"]


async def test_outcome_is_reported_again_when_its_node_task_is_assigned_again(workers: Workers) -> None:
    engine = await started_engine()
    try:
        workers.start("js", engine.address)
        session = await engine.session()
        session.assign("linger", "t1")
        await session.until_completed("t1")
        session.acknowledge()
        session.assign("linger", "t1")
        await session.until_completed("t1", "t1")
        assert workers.begun_attempts == ["js 1"]
    finally:
        await engine.stop()


async def test_worker_that_leaves_runs_what_was_on_its_way_to_it(workers: Workers) -> None:
    engine = await started_engine()
    engine.acknowledging = False
    try:
        worker = workers.start("js", engine.address)
        session = await engine.session()
        worker.send_signal(signal.SIGTERM)
        await until(lambda: [(each.draining, each.renew) for each in session.requests] == [(True, True)], "it leaves")
        session.assign("linger", "t1")
        session.acknowledge()
        await session.until_completed("t1")
        session.acknowledge()
        assert await wait_for_exit(worker) == 0
    finally:
        await engine.stop()


async def test_what_a_node_says_goes_in_few_messages(workers: Workers) -> None:
    """Renewals of its lease wait behind them."""
    engine = await started_engine()
    try:
        workers.start("js", engine.address)
        session = await engine.session()
        session.assign("chatter", "t1", config_json='{"lines": 1000}')
        await session.until_completed("t1")
        said = [message for message in session.requests if message.logs or message.progress]
        assert [line.message for message in said for line in message.logs] == [f"line {at}" for at in range(1000)]
        assert len(said) < 50
    finally:
        await engine.stop()


async def test_worker_ends_when_another_takes_its_id(stack: Standalone, client: Client, workers: Workers) -> None:
    first = workers.start("one", stack.address)
    await wait_for_workers(client, 1)

    workers.start("one", stack.address)

    assert await wait_for_exit(first) == 1
    assert "refuses this worker" in workers.output


async def test_idempotency_keys_are_those_of_the_python_sdk(
    stack: Standalone, client: Client, workers: Workers
) -> None:
    @node("numbers")
    async def numbers() -> list[int]:
        return [7, 8]

    @node("tell_key_in_python")
    async def tell_key(ctx: Context, item: Any = None) -> str:
        return ctx.idempotency_key

    workers.start("one", stack.address)
    async with Worker([numbers, tell_key], address=stack.address):
        await wait_for_workers(client, 2)
        flow = Flow("keys", "1h")
        items = flow.node("items", numbers)
        for node_id, node_type, mapped in (("a", "tell_key", None), ("b", "tell_key", "item")):
            items["output"] >> flow.node(node_id, node_type, map=mapped)["item"]
            items["output"] >> flow.node(f"{node_id}_py", "tell_key_in_python", map=mapped)["item"]
        await client.register_flow("keys", flow)
        run = await client.run_flow("keys")
        outputs = await run.result(PATIENCE_S)
        run_id = (await run.get()).run_id
        assert outputs == {
            "a": {"key": f"{run_id}:a"},
            "a_py": {"output": f"{run_id}:a_py"},
            "b": {"key": [f"{run_id}:b:0", f"{run_id}:b:1"]},
            "b_py": {"output": [f"{run_id}:b_py:0", f"{run_id}:b_py:1"]},
        }
        for node_type, handle in (("tell_key", "key"), ("tell_key_in_python", "output")):
            task = await client.submit_task(node_type)
            assert (await task.result(PATIENCE_S))[handle].startswith(f"{task.task_id}:")
