"""Bulk jobs over a whole stack: the client and the commands."""

import re
from datetime import timedelta, timezone
from pathlib import Path

import pytest

from tests.system.processes import Shell
from tests.waiting import until
from tradewind.client import BulkJobStatus, Client, Conflict, CycleStatus, NotFound
from tradewind.flow import Flow
from tradewind.server.partitions import PARTITIONS


def needy(flow_id: str, folder: Path) -> Flow:
    """Return the flow a -> b, where b fails until `start_in_other_zone` is in the folder."""
    flow = Flow(flow_id, "1h", overlap="allow")
    ledger = {"ledger": str(folder / "ledger")}
    a = flow.node("a", "counted", ledger)
    a["value"] >> flow.node("b", "counted", {**ledger, "needs": str(folder / "there")})["value"]
    return flow


async def test_bulk_job_reruns_failed_cycles_of_matching_flows(client: Client, shell: Shell, tmp_path: Path) -> None:
    for flow_id in ("eu.a", "eu.b", "us.a"):
        await client.register_flow(flow_id, needy(flow_id, tmp_path))
        for _ in range(25):
            await client.run_flow(flow_id, wait=30)
    (tmp_path / "there").touch()
    await client.run_flow("eu.a", wait=30)
    preview = await shell.json("job", "rerun", "eu.*", "--dry-run")
    assert (preview["matched"], preview["done"], preview["failed"], len(preview["items"])) == (50, 0, 0, 50)
    assert (await client.get_cycle("eu.a", 0)).run == 0
    begun = (await client.get_cycle("eu.b", 0)).start_time
    assert begun is not None
    start_in_other_zone = begun.astimezone(timezone(timedelta(hours=5))).isoformat()
    earlier = await shell.json("job", "rerun", "eu.*", "--started-before", start_in_other_zone, "--dry-run")
    assert {item["flow_id"] for item in earlier["items"]} == {"eu.a"}, "the time is that of the zone it names"
    shown = await shell("job", "rerun", "eu.*", "--wait", "--reason", "the feed was late", "--request-id", "once")
    job_id = re.findall(r"^(job-\w+) rerun completed: 50 cycles matched, 50 done, 0 failed", shown, re.MULTILINE)[0]
    again = await client.start_bulk_job("rerun", ["eu.*"], reason="the feed was late", request_id="once")
    assert (again.job_id, again.done) == (job_id, 50)
    with pytest.raises(Conflict):
        await client.start_bulk_job("rerun", ["us.*"], request_id="once")
    for flow_id in ("eu.a", "eu.b"):
        for cycle in range(25):
            record = await client.cycle(flow_id, cycle, 1).wait(30)
            assert record.status is CycleStatus.COMPLETED
            assert record.rerun is not None
            assert (record.rerun.by, record.rerun.reason) == (f"default ({job_id})", "the feed was late")
    assert (await client.get_cycle("us.a", 0)).status is CycleStatus.FAILED
    assert job_id in await shell("job", "list")
    with pytest.raises(NotFound):
        await client.get_bulk_job("job-none")


async def test_bulk_rerun_covers_equal_cycle_numbers_of_many_flows(client: Client, tmp_path: Path) -> None:
    flow_ids = [f"desk.{number}" for number in range(PARTITIONS + 1)]
    for flow_id in flow_ids:
        await client.register_flow(flow_id, needy(flow_id, tmp_path))
        await client.run_flow(flow_id, wait=30)
    (tmp_path / "there").touch()
    job = await client.wait_bulk_job((await client.start_bulk_job("rerun", ["desk.*"])).job_id, 30)
    assert (job.done, job.failed, job.items) == (len(flow_ids), 0, ())
    for flow_id in flow_ids:
        assert (await client.cycle(flow_id, 0, 1).wait(30)).status is CycleStatus.COMPLETED


async def test_bulk_job_stops_running_cycles_and_reports_failed_items(
    client: Client, shell: Shell, tmp_path: Path
) -> None:
    flow = Flow("held", "1h", overlap="allow")
    flow.node("gate", "gate", {"file": str(tmp_path / "gate")})
    await client.register_flow("held", flow)
    handles = [await client.run_flow("held") for _ in range(3)]
    await until(Path(f"{tmp_path}/gate.begun").exists, "one has begun")
    limited = await client.start_bulk_job("stop", ["held"], limit=2)
    assert (await client.wait_bulk_job(limited.job_id, 30)).done == 2
    assert [(await handle.wait(30)).status.value for handle in handles[1:]] == ["cancelled", "cancelled"]
    assert (await client.get_cycle("held", 0)).status is CycleStatus.RUNNING
    refused = await client.start_bulk_job("rerun", ["held", "nothing"], statuses=["running"])
    ended = await client.wait_bulk_job(refused.job_id, 30)
    assert (ended.status, ended.matched, ended.failed) == (BulkJobStatus.COMPLETED, 1, 1)
    assert [(item.cycle, item.error_reason) for item in ended.items] == [(0, "CYCLE_RUNNING")]
    assert "has not ended" in await shell("job", "show", refused.job_id)
    assert (await client.cancel_bulk_job(refused.job_id)).status is BulkJobStatus.COMPLETED
    assert "3 done" in await shell("job", "stop", "held", "--status", "running", "--status", "cancelled", "--wait")
