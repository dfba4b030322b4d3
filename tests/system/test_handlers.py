"""Nodes that run on failure or last, over a whole stack."""

from pathlib import Path

import pytest

from tests.system.processes import Shell
from tests.waiting import until
from tradewind.client import Client, CycleStatus, WrongStatus
from tradewind.flow import Flow


def guarded(folder: Path) -> Flow:
    """Return a -> b, where b fails until `there` is in the folder; c runs on failure, d -> e run last."""
    flow = Flow("guarded", "1h")
    ledger = {"ledger": str(folder / "ledger")}
    a = flow.node("a", "counted", ledger)
    a["value"] >> flow.node("b", "counted", {**ledger, "needs": str(folder / "there")})["value"]
    flow.on_failure(flow.node("c", "report_outcome"))
    d, e = flow.node("d", "report_outcome"), flow.node("e", "read_status")
    d["outcome"] >> e["value"]
    flow.finally_(d, e)
    return flow


async def test_handlers_run_in_order_after_other_nodes_and_receive_outcome(client: Client, tmp_path: Path) -> None:
    await client.register_flow("guarded", guarded(tmp_path))
    handle = await client.run_flow("guarded", {"greeting": "hello"})
    ended = await handle.wait(30)
    assert ended.status is CycleStatus.FAILED
    assert ended.phase == "over"
    nodes = {node.node_id: node for node in (await client.describe_cycle("guarded", 0, include_outputs=True)).nodes}
    assert {name: node.status.value for name, node in nodes.items()} == {
        "a": "completed",
        "b": "failed",
        "c": "completed",
        "d": "completed",
        "e": "completed",
    }
    outcome = nodes["c"].outputs["outcome"]
    assert (outcome["status"], outcome["failed_count"], outcome["greeting"]) == ("failed", 1, "hello")
    assert [(each["node_id"], each["error"]["code"]) for each in outcome["failed_nodes"]] == [("b", "NODE_ERROR")]
    assert nodes["e"].outputs == {"status": "failed"}
    assert nodes["c"].started_at is not None
    assert nodes["b"].ended_at is not None
    assert nodes["c"].ended_at is not None
    assert nodes["d"].started_at is not None
    assert nodes["b"].ended_at <= nodes["c"].started_at <= nodes["c"].ended_at <= nodes["d"].started_at


async def test_many_finally_nodes_run_with_large_inputs(client: Client, tmp_path: Path) -> None:
    flow = Flow("cleaned", "1h")
    flow.node("main", "counted", {"ledger": str(tmp_path / "ledger")})
    flow.finally_(*(flow.node(f"last-{place}", "report_outcome") for place in range(10)))
    await client.register_flow("cleaned", flow)
    handle = await client.run_flow("cleaned", {"filler": "x" * 600_000})
    ended = await handle.wait(60)
    assert (ended.status, ended.counts.completed) == (CycleStatus.COMPLETED, 11)


async def test_successful_rerun_skips_failure_handlers_and_repeats_finally_nodes(
    client: Client, tmp_path: Path
) -> None:
    await client.register_flow("guarded", guarded(tmp_path))
    assert (await (await client.run_flow("guarded")).wait(30)).status is CycleStatus.FAILED
    (tmp_path / "there").touch()
    again = await client.rerun_cycle("guarded")
    assert (await again.wait(30)).status is CycleStatus.COMPLETED
    nodes = {node.node_id: node for node in (await client.describe_cycle("guarded", 0, include_outputs=True)).nodes}
    assert (nodes["c"].status.value, nodes["c"].reason) == ("skipped", "the cycle did not fail")
    assert nodes["a"].kept_from == "guarded:0:0:a"
    assert nodes["d"].kept_from == ""
    assert nodes["d"].outputs["outcome"]["status"] == "completed"
    with pytest.raises(WrongStatus) as refused:
        await client.rerun_cycle("guarded")
    assert refused.value.reason == "NOTHING_TO_RERUN"


async def test_inputs_of_rerun_reach_finally_nodes_to_begin_at(client: Client, tmp_path: Path) -> None:
    await client.register_flow("guarded", guarded(tmp_path))
    (tmp_path / "there").touch()
    assert (await (await client.run_flow("guarded", {"greeting": "hello"})).wait(30)).status is CycleStatus.COMPLETED
    again = await client.rerun_cycle("guarded", from_nodes=["d"], inputs={"greeting": "good day"})
    assert (await again.wait(30)).status is CycleStatus.COMPLETED
    d = (await client.describe_cycle("guarded", include_outputs=True)).node("d")
    assert d is not None
    assert d.outputs["outcome"]["greeting"] == "good day"


async def test_first_stop_spares_finally_nodes_and_second_stop_ends_them(
    client: Client, shell: Shell, tmp_path: Path
) -> None:
    flow = Flow("guarded", "1h")
    flow.node("long", "gate", {"file": str(tmp_path / "long")})
    flow.on_failure(flow.node("c", "report_outcome"))
    flow.finally_(flow.node("last", "gate", {"file": str(tmp_path / "last")}))
    await client.register_flow("guarded", flow)
    handle = await client.run_flow("guarded")
    await until(Path(f"{tmp_path}/long.begun").exists, "the node runs")
    assert "waits until all other components" in await shell("cycle", "show", "guarded")
    await client.stop_cycle("guarded", reason="enough")
    await until(Path(f"{tmp_path}/last.begun").exists, "the finally node has begun")
    assert "phase finally" in await shell("cycle", "show", "guarded")
    assert (await client.get_cycle("guarded")).status is CycleStatus.RUNNING
    await client.stop_cycle("guarded", reason="really")
    ended = await handle.wait(30)
    assert ended.status is CycleStatus.CANCELLED
    nodes = {node.node_id: node.status.value for node in (await client.describe_cycle("guarded", 0)).nodes}
    assert nodes == {"long": "terminated", "c": "skipped", "last": "terminated"}


async def test_bulk_stop_does_not_count_as_second_stop(client: Client, tmp_path: Path) -> None:
    flow = Flow("guarded", "1h")
    flow.node("long", "gate", {"file": str(tmp_path / "long")})
    flow.finally_(flow.node("last", "gate", {"file": str(tmp_path / "last")}))
    await client.register_flow("guarded", flow)
    handle = await client.run_flow("guarded")
    await until(Path(f"{tmp_path}/long.begun").exists, "the node runs")
    await client.stop_cycle("guarded", reason="enough")
    await until(Path(f"{tmp_path}/last.begun").exists, "the finally node has begun")

    job = await client.wait_bulk_job((await client.start_bulk_job("stop", ["guarded"])).job_id, 30)
    assert (job.done, job.failed) == (1, 0)
    (tmp_path / "last").touch()
    ended = await handle.wait(30)
    assert ended.status is CycleStatus.CANCELLED
    assert ended.stop is not None
    assert ended.stop.reason == "enough"
    nodes = {node.node_id: node.status.value for node in (await client.describe_cycle("guarded", 0)).nodes}
    assert nodes == {"long": "terminated", "last": "completed"}
