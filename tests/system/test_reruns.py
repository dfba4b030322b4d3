"""Rerunning and stopping cycles over a whole stack: the client and the commands."""

import re
from pathlib import Path

import pytest

from tests.system.flows import gated
from tests.system.processes import Shell
from tests.waiting import until
from tradewind.client import Client, CycleFailed, CycleStatus, NodeTaskStatus, WrongStatus
from tradewind.flow import Flow


def ladder(folder: Path) -> Flow:
    """Return a -> b -> c and a -> d -> e, where b fails until `there` is in the folder; f stands alone."""
    flow = Flow("ladder", "1h")
    at = {
        name: flow.node(name, "counted", {"ledger": str(folder / "ledger"), "step": 10**place})
        for place, name in enumerate("acde")
    }
    at["b"] = flow.node("b", "counted", {"ledger": str(folder / "ledger"), "needs": str(folder / "there")})
    flow.node("f", "counted", {"ledger": str(folder / "ledger")})
    for source, target in ("ab", "bc", "ad", "de"):
        at[source]["value"] >> at[target]["value"]
    return flow


def ran(folder: Path) -> list[str]:
    """Return which nodes ran in which run, in the order of their names."""
    return sorted((folder / "ledger").read_text().split())


async def test_a_rerun_keeps_good_results_and_runs_the_rest(client: Client, shell: Shell, tmp_path: Path) -> None:
    await client.register_flow("ladder", ladder(tmp_path))
    first = await client.run_flow("ladder", wait=30)
    assert first.record is not None
    assert first.record.status is CycleStatus.PARTIAL
    assert ran(tmp_path) == ["a:0", "b:0", "d:0", "e:0", "f:0"]
    (tmp_path / "there").touch()
    again = await client.rerun_cycle("ladder", 0, wait=30, reason="the file is there now")
    assert again.record is not None
    assert (again.record.cycle, again.record.run, again.record.status) == (0, 1, CycleStatus.COMPLETED)
    assert again.record.revision == first.record.revision
    assert again.record.rerun is not None
    assert (again.record.rerun.source_run, again.record.rerun.kept_nodes) == (0, 4)
    assert ran(tmp_path) == ["a:0", "b:0", "b:1", "c:1", "d:0", "e:0", "f:0"]
    # Kept results reach the nodes that run, and are among the outputs.
    assert await again.result() == {"c": {"value": 1 + 1 + 10}, "e": {"value": 1 + 100 + 1000}, "f": {"value": 1}}
    described = await client.describe_cycle("ladder", 0)
    assert {node.node_id: node.kept_from for node in described.nodes} == {
        "a": "ladder:0:0:a",
        "b": "",
        "c": "",
        "d": "ladder:0:0:d",
        "e": "ladder:0:0:e",
        "f": "ladder:0:0:f",
    }
    before = await client.describe_cycle("ladder", 0, 0)
    assert before.cycle.status is CycleStatus.PARTIAL
    assert [node.status for node in before.nodes if node.node_id == "b"] == [NodeTaskStatus.FAILED]
    shown = await shell("cycle", "show", "ladder", "0")
    assert re.search(r"keeps 4 of 6 results of run 0: the file is there now", shown)
    assert re.search(r"^a +counted +completed .*kept from run 0", shown, re.MULTILINE)
    assert "is not there" in await shell("cycle", "show", "ladder", "0", "--run", "0")
    # A handle of the first run reports that run.
    first_handle = client.cycle("ladder", 0, 0)
    assert [(record.run, record.status) async for record in first_handle.watch()] == [(0, CycleStatus.PARTIAL)]
    with pytest.raises(CycleFailed) as failed:
        await client.cycle("ladder", 0, 0).result(30)
    assert (failed.value.cycle.run, [each.node_id for each in failed.value.failures]) == (0, ["b"])
    # A rerun of a rerun: results kept before are kept again, from where they are.
    assert "name the nodes to begin at with --from NODE" in await shell("cycle", "rerun", "ladder", "0", exit_code=1)
    second_rerun = await shell.json("cycle", "rerun", "ladder", "0", "--from", "d", "--wait")
    assert second_rerun["cycle"]["run"] == 2
    assert second_rerun["outputs"]["e"] == {"value": 1101}
    assert ran(tmp_path)[-5:] == ["d:0", "d:2", "e:0", "e:2", "f:0"]
    described = await client.describe_cycle("ladder", 0)
    kept = {node.node_id: node.kept_from for node in described.nodes if node.kept_from}
    assert kept == {"a": "ladder:0:0:a", "b": "ladder:0:1:b", "c": "ladder:0:1:c", "f": "ladder:0:0:f"}


async def test_rerun_inputs_replace_earlier_ones(client: Client, shell: Shell, tmp_path: Path) -> None:
    await client.register_flow("ladder", ladder(tmp_path))
    (tmp_path / "there").touch()
    await client.run_flow("ladder", {"value": 5}, wait=30)
    again = await shell.json("cycle", "rerun", "ladder", "--from", "f", "--input", "value=7", "--wait")
    assert again["outputs"]["f"] == {"value": 8}
    assert again["outputs"]["c"] == {"value": 5 + 1 + 1 + 10}
    assert again["cycle"]["inputs"] == {"value": 7}
    with pytest.raises(WrongStatus, match="every node of cycle 0") as refused:
        await client.rerun_cycle("ladder", 0)
    assert refused.value.reason == "NOTHING_TO_RERUN"


async def test_repeated_rerun_request_runs_once(client: Client, tmp_path: Path) -> None:
    await client.register_flow("ladder", ladder(tmp_path))
    await client.run_flow("ladder", wait=30)
    (tmp_path / "there").touch()
    answers = [await client.rerun_cycle("ladder", wait=30, request_id="again") for _ in range(2)]
    assert [answer.record and answer.record.run for answer in answers] == [1, 1]
    assert ran(tmp_path).count("b:1") == 1


async def test_stopped_cycle_shows_user_reason_and_time_and_can_be_rerun(
    client: Client, shell: Shell, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    await client.register_flow("gated", gated(gate))
    handle = await client.run_flow("gated")
    await until(Path(f"{gate}.begun").exists, "the node waits at the gate")
    with pytest.raises(WrongStatus, match="has not ended") as refused:
        await client.rerun_cycle("gated", 0)
    assert refused.value.reason == "CYCLE_RUNNING"
    assert "is stopping" in await shell("cycle", "stop", "gated", "--reason", "wrong day")
    ended = await handle.wait(30)
    assert ended.status is CycleStatus.CANCELLED
    assert ended.stop is not None
    assert (ended.stop.reason, ended.stop.by, ended.stop.at is not None) == ("wrong day", "default", True)
    assert re.search(r'stopped .* by "default": wrong day', await shell("cycle", "show", "gated"))
    assert (await client.stop_cycle("gated")).status is CycleStatus.CANCELLED
    gate.touch()
    again = await client.rerun_cycle("gated", wait=30)
    assert await again.result() == {"gate": {"passed": 6}}
    with pytest.raises(WrongStatus, match="has ended") as refused:
        await client.stop_cycle("gated")
    assert refused.value.reason == "CYCLE_ENDED"


async def test_single_node_or_component_can_be_stopped(client: Client, shell: Shell, tmp_path: Path) -> None:
    flow = gated(tmp_path / "gate")
    other = tmp_path / "other"
    flow.node("lone", "gate", {"file": str(other)})
    await client.register_flow("gated", flow)
    handle = await client.run_flow("gated")
    await until(lambda: Path(f"{other}.begun").exists() and Path(f"{tmp_path}/gate.begun").exists(), "both wait")
    assert "lone is " in await shell("cycle", "stop", "gated", "--node", "lone", "--reason", "not this one")
    assert "component 0 of cycle 0" in await shell("cycle", "stop", "gated", "--component", "0")
    assert (await handle.wait(30)).status is CycleStatus.FAILED
    nodes = {node.node_id: node for node in (await client.describe_cycle("gated", 0)).nodes}
    assert {name: node.status.value for name, node in nodes.items()} == {
        "feed": "completed",
        "add": "completed",
        "gate": "terminated",
        "lone": "terminated",
    }
    assert (nodes["lone"].stop_by, nodes["lone"].stop_reason) == ("default", "not this one")
    assert nodes["lone"].stopped_at is not None
    logs = await shell("flow", "logs", "gated")
    assert 'Stopping node lone, by "default": not this one' in logs
    assert 'Stopping component 0, by "default"' in logs
