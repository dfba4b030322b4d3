"""Nodes that run once for each item of a list, over a whole stack: the client and the commands."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.system.processes import Shell
from tests.waiting import until
from tradewind.client import Client, CycleStatus, InvalidInput, ItemCounts, NodeTaskStatus, NotFound, WrongStatus
from tradewind.flow import Flow, Retry


def halving(count: int, **fan_out: Any) -> Flow:
    """Return a flow that halves each of the numbers from 0 on, and lists all results and errors."""
    flow = Flow("halving", "1h")
    numbers = flow.node("numbers", "numbers", {"start": 0, "count": count})
    half = flow.node("half", "half", map="number", **fan_out)
    listed = flow.node("listed", "listed")
    numbers["numbers"] >> half["number"]
    half["half"] >> listed["values"]
    half["errors"] >> listed["errors"]
    return flow


async def test_item_results_reach_successors_in_order(client: Client) -> None:
    flow = Flow("doubles", "1h")
    numbers = flow.node("numbers", "numbers", {"start": 10, "count": 250})
    label = flow.node("label", "total", {"numbers": [7]})
    shared = flow.node("shared", "shared", map="number", max_parallel=7)
    listed = flow.node("listed", "listed")
    numbers["numbers"] >> shared["number"]
    label["total"] >> shared["label"]
    shared["labelled"] >> listed["values"]
    await client.register_flow("doubles", flow)
    handle = await client.run_flow("doubles")
    assert (await handle.wait(30)).status is CycleStatus.COMPLETED
    described = await client.describe_cycle("doubles", 0, include_outputs=True)
    expected = [f"7-{at}-{at + 10}" for at in range(250)]
    listed_task, shared_task = described.node("listed"), described.node("shared")
    assert listed_task is not None
    assert listed_task.outputs["listed"] == {"values": expected, "errors": None}
    assert shared_task is not None
    assert shared_task.items == ItemCounts(250, 250, begun=250, completed=250)
    assert described.statistics.completed_nodes == described.statistics.total_nodes == 4


async def test_node_succeeds_with_enough_items_and_null_for_failed_ones(client: Client, shell: Shell) -> None:
    await client.register_flow("halving", halving(6, min_success=0.5))
    handle = await client.run_flow("halving")
    assert (await handle.wait(30)).status is CycleStatus.COMPLETED
    shown = await shell.json("cycle", "show", "halving", "--output", "listed")
    assert shown["listed"]["values"] == [0, None, 1, None, 2, None]
    assert [error["item"] for error in shown["listed"]["errors"]] == [1, 3, 5]
    assert shown["listed"]["errors"][0] == {
        "item": 1,
        "status": "failed",
        "code": "NODE_ERROR",
        "type": "ValueError",
        "message": "1 is odd",
    }
    assert re.search(r"half +half +completed .*6 of 6 items done, 3 failed", await shell("cycle", "show", "halving"))
    items = await shell("cycle", "show", "halving", "--items", "half")
    assert re.search(r"^3 +failed +1 .*ValueError: 3 is odd", items, re.MULTILINE)
    wrong = await shell("cycle", "show", "halving", "--items", "listed", exit_code=2)
    assert wrong == "error: listed does not run over a list: it has no items\n"
    wrong = await shell("cycle", "show", "halving", "--items", "hlaf", exit_code=2)
    assert wrong == 'error: cycle 0 of halving has no node "hlaf"; did you mean "half"?\n'
    assert re.search(r"items +6 of 6 items done, 3 failed", await shell("task", "show", "halving:0:0:half"))
    assert re.search(r"error: ValueError: 5 is odd", await shell("task", "show", "halving:0:0:half:5"))


async def test_kept_node_shows_items_of_its_original_run(client: Client, shell: Shell) -> None:
    await client.register_flow("halving", halving(6, min_success=0.5))
    assert (await (await client.run_flow("halving")).wait(30)).status is CycleStatus.COMPLETED
    for run in (1, 2):
        again = await client.rerun_cycle("halving", from_nodes=["listed"], wait=30)
        assert again.record is not None
        assert (again.record.run, again.record.status) == (run, CycleStatus.COMPLETED)
        half = (await client.describe_cycle("halving", 0)).node("half")
        assert half is not None
        assert (half.kept_from, half.items) == ("halving:0:0:half", ItemCounts(6, 3, begun=6, completed=3, failed=3))
        items = [item async for item in client.list_node_tasks("halving", 0, items_of="half")]
        assert [(item.node_task_id, item.run) for item in items] == [(f"halving:0:0:half:{at}", 0) for at in range(6)]
        assert [item.status.value for item in items] == ["completed", "failed"] * 3
        assert (await client.get_node_task(f"halving:0:{run}:half:3")).node_task_id == "halving:0:0:half:3"
    assert re.search(
        r"^3 +failed +1 .*ValueError: 3 is odd", await shell("cycle", "show", "halving", "--items", "half"), re.M
    )


async def test_node_fails_once_too_few_items_can_succeed(client: Client, shell: Shell) -> None:
    await client.register_flow("halving", halving(1000, max_parallel=1, min_success=998, retry=Retry(2, "10ms")))
    handle = await client.run_flow("halving")
    assert (await handle.wait(30)).status is CycleStatus.FAILED
    node = await client.get_node_task("halving:0:0:half")
    assert node.error is not None
    assert node.error.code == "ITEMS_FAILED"
    assert node.error.message == (
        "at least 998 of 1000 items must complete; 3 failed, 0 cancelled, 994 never begun; the first is "
        "item 1 (failed): ValueError: 1 is odd, not tried again: all 2 attempts failed"
    )
    items = [item async for item in client.list_node_tasks("halving", 0, items_of="half")]
    assert [item.item for item in items] == list(range(1000))
    assert (items[1].failures, items[1].status) == (2, NodeTaskStatus.FAILED)
    assert (items[999].status, items[999].reason) == (NodeTaskStatus.SKIPPED, "the node ended before this item began")


@pytest.mark.parametrize(
    ("numbers", "code", "message"),
    [
        ({"a": 1}, "NODE_ERROR", 'input "number", which the node is mapped over, must be a list, is {"a":1}'),
        (list(range(10_001)), "INPUT_TOO_LARGE", 'the list at input "number" has 10001 items, over 10000: map over'),
    ],
)
async def test_input_that_is_no_list_or_too_long_fails_node(
    client: Client, numbers: object, code: str, message: str
) -> None:
    flow = Flow("odd", "1h")
    source = flow.node("source", "listed", {"values": []}) if isinstance(numbers, dict) else None
    if source is None:
        assert isinstance(numbers, list)
        source = flow.node("source", "numbers", {"count": len(numbers)})
    half = flow.node("half", "half", map="number")
    source["listed" if source.type == "listed" else "numbers"] >> half["number"]
    await client.register_flow("odd", flow)
    assert (await (await client.run_flow("odd")).wait(30)).status is CycleStatus.FAILED
    node = await client.get_node_task("odd:0:0:half")
    assert node.error is not None
    assert node.error.code == code
    assert node.error.message.startswith(message.partition(", is {")[0])


async def test_empty_list_succeeds(client: Client) -> None:
    await client.register_flow("halving", halving(0, min_success=3))
    assert (await (await client.run_flow("halving")).wait(30)).status is CycleStatus.COMPLETED
    listed = await client.get_node_task("halving:0:0:listed")
    assert listed.outputs["listed"] == {"values": [], "errors": []}


async def test_stopping_node_ends_running_and_waiting_items(client: Client, shell: Shell, tmp_path: Path) -> None:
    flow = Flow("gated", "1h")
    numbers = flow.node("numbers", "numbers", {"count": 40})
    gate = flow.node("gate", "gate", {"file": str(tmp_path / "never")}, map="total", max_parallel=3)
    numbers["numbers"] >> gate["total"]
    await client.register_flow("gated", flow)
    handle = await client.run_flow("gated")

    async def running() -> bool:
        items = [item async for item in client.list_node_tasks("gated", 0, items_of="gate")]
        return sum(item.progress == 50 for item in items) == 3

    await until(running, "three items run")
    node = await client.get_node_task("gated:0:0:gate")
    assert (node.status, node.items) == (NodeTaskStatus.RUNNING, ItemCounts(40, 40, begun=3))
    assert node.message == "0 of 40 items have ended, 3 are open"
    waiting = await client.get_node_task("gated:0:0:gate:3")
    assert (waiting.status, waiting.reason) == (
        NodeTaskStatus.REGISTERED,
        "waits until fewer than 3 of the earlier items are open",
    )
    with pytest.raises(NotFound):
        await client.get_node_task("gated:0:0:gate:40")
    with pytest.raises(WrongStatus, match='item 39 of node "gate" has not begun; stop the node to stop it as well'):
        await client.terminate_node_task("gated:0:0:gate:39")
    await client.terminate_node_task("gated:0:0:gate", reason="enough")
    assert (await handle.wait(30)).ended
    node = await client.get_node_task("gated:0:0:gate")
    assert (node.status, node.reason) == (NodeTaskStatus.TERMINATED, "enough")
    assert node.items == ItemCounts(40, 40, begun=3, cancelled=3)


async def test_invalid_fan_out_fields_are_refused_with_path(client: Client) -> None:
    weather = halving(3, max_parallel=4, min_success=0.9).to_weather()
    half = next(node for node in weather["nodes"] if node["id"] == "half")
    assert (half["map"], half["max_parallel"], half["min_success"]) == ("number", 4, 0.9)
    for change, fault in (
        ({"map": "nubmer"}, r'nodes\[1\].map: no edge leads into input "nubmer".*did you mean "number"'),
        ({"max_parallel": 0}, r"nodes\[1\].max_parallel: must be a whole number from 1 to 10000, is 0"),
        ({"min_success": 1.5}, r"nodes\[1\].min_success: must be a whole number of items from 0 to 10000, or a share"),
        ({"min_success": -1}, r"nodes\[1\].min_success: must be"),
        ({"map": None}, r'nodes\[1\].max_parallel: needs "map"'),
    ):
        broken = json.loads(json.dumps(weather))
        broken["nodes"][1] |= change
        with pytest.raises(InvalidInput, match=fault):
            await client.register_flow("broken", broken)


async def test_flow_graph_shows_fan_out(client: Client, shell: Shell) -> None:
    await client.register_flow("halving", halving(3, max_parallel=4))
    assert "half (half)  for each of number, 4 at once" in await shell("flow", "graph", "halving")
