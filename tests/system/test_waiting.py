"""Flows that wait, over a whole stack: nodes of workers, built-in nodes, the client and the commands."""

import re

import pytest

from tests.system.processes import Shell
from tests.waiting import until
from tradewind.client import Client, CycleStatus, InvalidInput, NodeTaskStatus
from tradewind.flow import Flow

FORM = {"title": "Release it?", "fields": [{"name": "size", "type": "integer", "required": True}]}


async def status(client: Client, task_id: str) -> NodeTaskStatus:
    return (await client.get_node_task(task_id)).status


async def test_node_waits_for_signal_and_resumes_with_its_payload(client: Client, shell: Shell) -> None:
    flow = Flow("paying", "1h")
    flow.node("pay", "payment", {"sum": 5})
    await client.register_flow("paying", flow)
    handle = await client.run_flow("paying")
    task_id = "paying:0:0:pay"

    async def waits() -> bool:
        return await status(client, task_id) is NodeTaskStatus.SUSPENDED

    await until(waits, "it waits")
    assert re.search(r"pay +payment +suspended .*waits for signal .paid.", await shell("cycle", "show", "paying"))
    described = await client.describe_cycle("paying", 0)
    assert (described.cycle.status, described.statistics.suspended_nodes) == (CycleStatus.RUNNING, 1)
    assert described.statistics.waiting
    assert "paying cycle 0 waiting" in await shell("cycle", "show", "paying")
    assert re.search(r"last cycle +0 waiting", await shell("flow", "status", "paying"))
    output = await shell(
        "task", "signal", task_id, "--signal", "paid", "--payload-json", '{"euros": 5}', "--request-id", "r1"
    )
    assert output.startswith(f"{task_id} received the signal")
    assert (await handle.wait(30)).status is CycleStatus.COMPLETED
    assert not (await client.describe_cycle("paying", 0)).statistics.waiting
    paid = (await client.get_node_task(task_id)).outputs["paid"]
    assert paid == {"sum": 5, "attempt": 2, "payload": {"euros": 5}, "by": "default"}
    assert re.search(r'resumed +by signal "paid" of "default"', await shell("task", "show", task_id))


async def test_process_node_can_wait_and_delay_passes_on_its_input(client: Client) -> None:
    flow = Flow("naps", "1h")
    nap = flow.node("nap", "nap", {"seconds": 0.05})
    pause = flow.node("pause", "delay", {"seconds": 0.05})
    kept = flow.node("kept", "keep")
    nap["woken"] >> pause["input"]
    pause["output"] >> kept["value"]
    await client.register_flow("naps", flow)
    handle = await client.run_flow("naps")
    assert (await handle.wait(30)).status is CycleStatus.COMPLETED
    assert (await client.get_node_task("naps:0:0:kept")).outputs == {"kept": True}


async def test_an_approval_is_shown_with_its_form_and_answered(client: Client, shell: Shell) -> None:
    flow = Flow("release", "1h")
    ask = flow.node("ask", "approval", {"form": FORM})
    ask["approved"] >> flow.node("yes", "keep")["value"]
    ask["rejected"] >> flow.node("no", "keep")["value"]
    registered = await client.register_flow("release", flow)
    assert registered.warnings == ()
    results = []
    for cycle, answer in enumerate((["--value", "size=100"], ["--reject"])):
        handle = await client.run_flow("release")

        async def waits_for_answer(task_id: str = f"release:{cycle}:0:ask") -> bool:
            return await status(client, task_id) is NodeTaskStatus.SUSPENDED

        await until(waits_for_answer, f"cycle {cycle} asks")
        shown = await shell("cycle", "show", "release", str(cycle))
        assert "ask asks: Release it?" in shown
        assert "size: integer, required" in shown
        assert f"tradewind cycle approve release {cycle} ask" in shown
        refused = await shell("cycle", "approve", "release", str(cycle), "ask", "--value", "size=much", exit_code=2)
        assert "must be of type integer" in refused
        output = await shell("cycle", "approve", "release", str(cycle), "ask", *answer)
        assert f"ask was {'rejected' if cycle else 'approved'}" in output
        assert (await handle.wait(30)).status is CycleStatus.COMPLETED
        described = await client.describe_cycle("release", cycle, include_outputs=True)
        nodes = [described.node(name) for name in ("ask", "yes", "no")]
        assert nodes[0] is not None
        assert nodes[0].resumed is not None
        assert nodes[0].resumed.by == "default"
        results.append((nodes[0].outputs, [str(each.status) for each in nodes[1:] if each is not None]))
    assert results == [
        ({"approved": {"approved": True, "values": {"size": 100}, "by": "default"}}, ["completed", "skipped"]),
        ({"rejected": {"approved": False, "values": {}, "by": "default"}}, ["skipped", "completed"]),
    ]


async def test_items_of_a_list_are_shown_with_their_forms_and_answered_one_by_one(client: Client, shell: Shell) -> None:
    flow = Flow("releases", "1h")
    numbers = flow.node("numbers", "numbers", {"count": 2})
    ask = flow.node("ask", "approval", {"form": FORM}, map="input")
    numbers["numbers"] >> ask["input"]
    ask["approved"] >> flow.node("keep", "keep")["value"]
    await client.register_flow("releases", flow)
    handle = await client.run_flow("releases")

    async def wait_for_answers() -> bool:
        items = [item async for item in client.list_node_tasks("releases", 0, items_of="ask")]
        return [item.status for item in items] == [NodeTaskStatus.SUSPENDED] * 2

    await until(wait_for_answers, "both items ask")
    place = "items of ask, and what they ask: tradewind cycle show releases 0 --items ask"
    assert place in await shell("cycle", "show", "releases")
    shown = await shell("cycle", "show", "releases", "0", "--items", "ask")
    assert "ask:1 asks: Release it?" in shown
    assert "tradewind cycle approve releases 0 ask:1" in shown
    whole = await shell("cycle", "approve", "releases", "0", "ask", "--reject", exit_code=2)
    assert "ask runs over a list: answer one item of it, such as ask:0" in whole
    approved = await shell("cycle", "approve", "releases", "0", "ask:0", "--value", "size=7")
    assert "ask:0 was approved" in approved
    assert "ask:1 was rejected" in await shell("cycle", "approve", "releases", "0", "ask:1", "--reject")
    assert (await handle.result(30)) == {
        "keep": {"kept": [{"approved": True, "values": {"size": 7}, "by": "default"}, None]}
    }
    assert place not in await shell("cycle", "show", "releases")


async def test_invalid_built_in_nodes_are_refused_with_all_faults(client: Client) -> None:
    flow = Flow("wrong", "1h")
    flow.node("pause", "delay", {"second": 1})
    flow.node("ask", "approval")
    with pytest.raises(InvalidInput) as caught:
        await client.register_flow("wrong", flow)
    paths = {each.path for each in caught.value.violations}
    assert paths == {"nodes[0].config.second", "nodes[0].config", "nodes[1].config"}


async def test_cycle_timeout_terminates_waiting_node(client: Client) -> None:
    flow = Flow("hasty", "1h", timeout="1s")
    flow.node("ask", "approval", {"form": FORM})
    await client.register_flow("hasty", flow)
    handle = await client.run_flow("hasty")
    cycle = await handle.wait(30)
    assert (cycle.status, cycle.counts.terminated) == (CycleStatus.TIMEOUT, 1)
    ask = await client.get_node_task("hasty:0:0:ask")
    assert (ask.status, ask.wait) == (NodeTaskStatus.TERMINATED, None)


async def test_ad_hoc_task_waits_for_signal_and_shows_it(client: Client) -> None:
    task = await client.submit_task("payment", {"sum": 7})
    seen = []
    async for state in task.watch():
        seen.append(state.happened or str(state.status))
        if state.status is NodeTaskStatus.SUSPENDED:
            await client.signal_node(task.task_id, "paid", [1], only_if_waiting=True)
    assert seen[-4:] == ["suspended", "queued", "running", "completed"], seen
    assert state.outputs["paid"] == {"sum": 7, "attempt": 2, "payload": [1], "by": "default"}
