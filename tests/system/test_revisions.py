"""Planning, changing and rolling back flows, as people do it."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.system import flows
from tests.system.processes import Shell
from tradewind.client import Aborted, ChangeKind, Client, InvalidInput, NotFound, SyncClient
from tradewind.flow import Flow, FlowError
from tradewind.standalone import Standalone


async def test_plan_register_update_diff_and_roll_back(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "sums.json"
    path.write_text(flows.sums().to_json(), encoding="utf-8")

    planned = await shell("flow", "plan", str(path))
    assert planned.startswith("sums would be a new flow: 4 nodes in 2 components\n")
    assert re.search(r"^0 +0 +1 +feed$", planned, re.MULTILINE)
    assert re.search(r"^numbers +2 +1 ", planned, re.MULTILINE)
    assert "next times:" in planned
    assert await shell.json("flow", "list") == []

    await shell("flow", "register", "sums", str(path), "--note", "first")
    assert (await shell("flow", "plan", str(path))).startswith("sums would stay as it is: revision 1")
    assert await shell(
        "flow", "update", "sums", "overlap=allow", "keep_cycles=7", "labels.team=a", "--note", "busy"
    ) == ("sums is at revision 2\n")
    assert "unchanged: revision 2" in await shell("flow", "update", "sums", "keep_cycles=7")
    listed = await shell.json("flow", "revisions", "sums")
    assert [(each["revision"], each["by"], each["note"], each["current"]) for each in listed] == [
        (2, "default", "busy", True),
        (1, "default", "first", False),
    ]
    assert re.search(r"^2 \* +\S+ +default +\w{12} +- +busy$", await shell("flow", "revisions", "sums"), re.MULTILINE)

    lines = (await shell("flow", "diff", "sums")).splitlines()
    assert re.fullmatch(r'--- sums revision 1 \S+ by "default": first', lines[0])
    assert re.fullmatch(r'\+\+\+ sums revision 2 \S+ by "default": busy', lines[1])
    assert {'+  "keep_cycles": 7,', '+  "overlap": "allow"'} <= set(lines)
    diff = await shell.json("flow", "diff", "sums", "1", "2")
    assert {"path": "keep_cycles", "before": None, "after": 7} in diff["diff"]["settings"]
    assert "~ keep_cycles 7 -> unset" in await shell("flow", "plan", str(path))

    etag = (await shell.json("flow", "status", "sums"))["flow"]["etag"]
    assert await shell("flow", "rollback", "sums", "1", "--etag", etag) == "sums is at revision 3\n"
    output = await shell("flow", "rollback", "sums", "2", "--etag", etag, exit_code=1)
    assert "has changed and is now at revision 3" in output
    assert await shell("flow", "diff", "sums", "1", "3") == "revisions 1 and 3 of sums are equal\n"
    assert (await shell("flow", "diff", "sums", "9", exit_code=2)).startswith("error: no revision")
    assert "sums cycle 0 completed" in await shell("flow", "run", "sums", "--wait")


async def test_plan_reports_faults_and_limits(shell: Shell) -> None:
    bad = json.dumps({"interval": 60, "nodes": [{"id": "feed", "type": "numbers", "retry": {"attempts": 0}}]})
    output = await shell("flow", "plan", "bad", "-", input=bad, exit_code=2)
    assert output.startswith("bad would be refused: 1 fault\n  nodes[0].retry.attempts: ")
    planned = await shell.json("flow", "plan", "wide", "-", input=wide().to_json())
    assert planned["limits"][0]["limit"] == "max_running"
    assert "max_running = 2: 9 nodes can be ready at once, but at most 2 may run" in await shell(
        "flow", "plan", "wide", "-", input=wide().to_json()
    )


def wide() -> Flow:
    flow = Flow("wide", interval="1h", max_running=2)
    for place in range(9):
        flow.node(f"n{place}", "numbers")
    return flow


async def test_client_revises_diffs_plans_and_rolls_back(client: Client) -> None:
    await client.register_flow("sums", flows.sums(), note="first")
    read = (await client.get_flow("sums")).flow.etag
    flow = client.flow("sums")
    revised = await flow.update({"schedule": {"cron": "0 2 * * *"}, "description": "d"}, etag=read, note="nightly")
    assert (revised.changed, revised.flow.revision) == (True, 2)
    await client.update_flow("sums", {"schedule.zone": "Europe/Berlin", "description": None})
    assert (await client.get_flow("sums")).flow.config["schedule"] == {"cron": "0 2 * * *", "zone": "Europe/Berlin"}
    with pytest.raises(Aborted) as caught:
        await client.register_flow("sums", flows.sums("5s"), etag=read)
    assert caught.value.metadata["etag"] == (await client.get_flow("sums")).flow.etag
    assert [(each.revision, each.note) async for each in flow.revisions()] == [(3, ""), (2, "nightly"), (1, "first")]
    with pytest.raises(InvalidInput):
        await client.update_flow("sums", {"keep_cycles": -1})
    with pytest.raises(FlowError):
        await client.update_flow("sums", {"colour": "red"})
    with pytest.raises(NotFound):
        await client.get_revision("sums", 9)

    diff = (await client.diff_revisions("sums", 1, 3)).diff
    assert [each.path for each in diff.settings] == ["interval", "schedule"]
    assert not diff.empty
    plan = await client.plan_flow("sums", {"interval": 5, "nodes": [{"id": "n", "type": "numbers"}]})
    assert plan.valid
    assert plan.diff is not None
    assert {node.kind for node in plan.diff.nodes} == {ChangeKind.REMOVED, ChangeKind.ADDED}
    assert (await flow.roll_back(1)).flow.revision == 4
    assert (await client.get_revision("sums")).config == (await client.get_revision("sums", 1)).config


async def test_sync_client_revises_and_rolls_back(stack: Standalone) -> None:
    def use() -> list[int]:
        with SyncClient(stack.address) as client:
            client.register_flow("sums", flows.sums())
            client.flow("sums").update({"max_running": 3})
            client.roll_back_flow("sums", 1)
            return [each.revision for each in client.list_revisions("sums")]

    assert await asyncio.to_thread(use) == [3, 2, 1]
