"""The client against the whole stack."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.system import flows
from tests.system.processes import NODES
from tests.waiting import until
from tradewind.client import (
    Client,
    CycleFailed,
    CycleHandle,
    CycleStatus,
    FlowStatus,
    InvalidInput,
    NodeTaskStatus,
    NotFound,
    RunRequest,
    SyncClient,
)
from tradewind.flow import Flow
from tradewind.standalone import Standalone
from tradewind.worker import Worker, load_nodes


async def test_run_returns_outputs(client: Client) -> None:
    registered = await client.register_flow("sums", flows.sums(), labels={"team": "a"})
    run = await client.run_flow("sums", {"start": 10})

    assert await run.result(30) == {"sort": {"even": 46}, "alone": {"numbers": [10, 11, 12]}}
    assert registered.changed
    assert registered.warnings == ()
    assert [component.nodes for component in registered.flow.components] == [("feed", "add", "sort"), ("alone",)]
    assert run.record is not None
    assert run.record.counts.completed == 4
    assert run.record.inputs == {"start": 10}


async def test_concurrent_runs_beyond_retention_return_outputs(client: Client) -> None:
    await client.register_flow("sums", flows.sums(overlap="allow"))

    async def result_of(start: int) -> object:
        run = await client.run_flow("sums", {"start": start})
        return (await run.result(60))["alone"]["numbers"]

    assert await asyncio.gather(*map(result_of, range(200))) == [[at, at + 1, at + 2] for at in range(200)]


async def test_scheduler_can_wait_for_end_of_run(client: Client) -> None:
    await client.register_flow("sums", flows.sums())
    run = await client.run_flow("sums", wait=10)

    assert run.record is not None
    assert run.record.ended
    assert await run.result() == {"sort": {"even": 10}, "alone": {"numbers": [7, 8, 9]}}


async def test_failed_run_reports_error(client: Client) -> None:
    await client.register_flow("failing", flows.failing())

    with pytest.raises(CycleFailed) as caught:
        await (await client.run_flow("failing")).result(30)

    assert caught.value.cycle.status is CycleStatus.FAILED
    assert str(caught.value.failures[0]) == "bad (failing) failed: ValueError: will not have 6"


async def test_run_flows_begins_many_runs_and_reports_unknown_flow(client: Client) -> None:
    await client.register_flow("sums", flows.sums(overlap="allow"))
    requests = [RunRequest("sums", {"start": start}) for start in range(20)]

    runs = await client.run_flows([*requests, "nobody"], wait=20)

    handles = [run for run in runs if isinstance(run, CycleHandle)]
    assert isinstance(runs[-1], NotFound)
    assert [handle.cycle for handle in handles] == list(range(20))
    results = [await handle.result() for handle in handles]
    assert [result["alone"]["numbers"][0] for result in results] == list(range(20))


async def test_invalid_definition_reports_every_fault_at_once(client: Client) -> None:
    definition = {
        "interval": -1,
        "nodes": [{"id": "a", "type": "numbers"}, {"id": "a", "type": "numbers"}],
        "edges": [{"source": "a", "source_handle": "numbers", "target": "b", "target_handle": "numbers"}],
        "colour": "red",
    }

    with pytest.raises(InvalidInput) as caught:
        await client.register_flow("bad", definition)

    analysis = await client.analyze_flow(definition)
    paths = [violation.path for violation in caught.value.violations]
    assert {"interval", "nodes[1].id", "edges[0].target", "colour"} <= set(paths)
    assert analysis.violations == caught.value.violations
    with pytest.raises(NotFound):
        await client.get_flow("bad")


async def test_a_started_flow_is_watched_and_stopped(client: Client) -> None:
    await client.register_flow("sums", flows.sums("200ms"))
    flow = client.flow("sums")
    started = await flow.start()
    ended: list[int] = []
    async with aclosing(flow.watch()) as cycles:
        async for cycle in cycles:
            if cycle.ended:
                assert cycle.status is CycleStatus.COMPLETED
                ended.append(cycle.cycle)
            if len(ended) == 3:
                break

    assert started.status is FlowStatus.RUNNING
    assert ended == list(range(ended[0], ended[0] + 3))
    assert (await flow.stop(reason="enough")).status is FlowStatus.STOPPED
    described = await flow.describe()
    assert described.flow.next_execution is None
    assert [cycle.cycle async for cycle in flow.cycles()][-3:] == [2, 1, 0]


async def test_stopping_flow_terminates_running_node(client: Client, tmp_path: Path) -> None:
    await client.register_flow("gated", flows.gated(tmp_path / "open"))
    run = await client.run_flow("gated")
    await until(lambda: (tmp_path / "open.begun").exists(), "the gate has begun")

    async def reported() -> bool:
        return (await client.get_node_task("gated:0:0:gate")).progress == 50

    await until(reported, "the node's progress is known")
    task = await client.get_node_task("gated:0:0:gate")
    await client.stop_flow("gated", reason="enough")
    cycle = await run.wait(20)

    assert (task.status, task.message) == (NodeTaskStatus.RUNNING, "at the gate")
    assert cycle.status is CycleStatus.CANCELLED
    described = await run.describe()
    gate = described.node("gate")
    assert gate is not None
    assert gate.status is NodeTaskStatus.TERMINATED
    assert gate.stop_reason == "enough"


async def test_terminated_node_task_fails_cycle(client: Client, tmp_path: Path) -> None:
    await client.register_flow("gated", flows.gated(tmp_path / "open"))
    run = await client.run_flow("gated")
    await until(lambda: (tmp_path / "open.begun").exists(), "the gate has begun")

    await client.terminate_node_task("gated:0:0:gate", reason="not today")

    with pytest.raises(CycleFailed) as caught:
        await run.result(20)
    assert [(each.node_id, each.status) for each in caught.value.failures] == [("gate", NodeTaskStatus.TERMINATED)]


async def test_logs_come_from_scheduler_and_nodes(client: Client) -> None:
    await client.register_flow("sums", flows.sums())
    run = await client.run_flow("sums", wait=10)
    await run.result()

    async def written() -> bool:
        lines = [line async for line in client.list_logs("sums")]
        return {"feed", "alone", ""} <= {line.node_id for line in lines}

    await until(written, "the log has lines of the scheduler and of both nodes")
    followed = [line.message async for line in client.watch_logs("sums", 0)]
    assert followed == [line.message async for line in run.logs()]
    assert "numbers from 7" in followed


async def test_deleted_flow_leaves_nothing_behind(client: Client) -> None:
    await client.register_flow("sums", flows.sums())
    await (await client.run_flow("sums")).result(30)

    assert await client.delete_flow("sums", wait=20)

    with pytest.raises(NotFound):
        await client.get_flow("sums")
    assert [flow async for flow in client.list_flows()] == []
    await client.register_flow("sums", flows.sums())
    assert (await client.run_flow("sums")).cycle == 0


async def test_client_lists_workers_and_node_types(client: Client, worker: Worker) -> None:
    workers = [each async for each in client.list_workers()]
    node_types = {each.type: each async for each in client.list_node_types()}

    assert [each.worker_id for each in workers] == [worker.worker_id]
    assert sorted(workers[0].node_types) == sorted(node.type for node in load_nodes(NODES))
    assert [handle.name for handle in node_types["parity"].outputs] == ["even", "odd"]
    assert node_types["total"].inputs[0].required
    assert [each.worker_id for each in await client.available_workers("gate")] == [worker.worker_id]
    assert (await client.drain_worker(worker.worker_id)).status == "draining"


async def test_sync_client_runs_flow_without_event_loop(stack: Standalone, worker: Worker) -> None:
    def use() -> object:
        with SyncClient(stack.address) as client:
            client.wait_ready()
            client.register_flow("sums", flows.sums())
            return client.run_flow("sums", {"start": 1}).result(30)

    assert await asyncio.to_thread(use) == {"sort": {"even": 10}, "alone": {"numbers": [1, 2, 3]}}


async def test_outputs_too_large_for_one_message_arrive_in_several(client: Client) -> None:
    flow = Flow("large", 0, overlap="allow")
    for at in range(6):
        flow.node(f"n{at}", "numbers", {"start": 0, "count": 140_000})
    await client.register_flow("large", flow)
    await client.register_flow("sums", flows.sums(overlap="allow"))
    expected = {f"n{at}": {"numbers": [*range(140_000)]} for at in range(6)}

    large = [client.run_flow("large", wait=wait) for wait in (0, 60, 60)]
    small = [client.run_flow("sums", wait=60) for _ in range(20)]
    runs = await asyncio.gather(*large, *small)
    few = await runs[-1].result(60)
    assert [await run.result(60) for run in runs] == [expected] * 3 + [few] * 20
    results = [
        await run.result(60)
        for run in await client.run_flows(["sums", "large", "sums"], wait=60)
        if isinstance(run, CycleHandle)
    ]
    assert results == [few, expected, few]
