"""`tradewind explain` against a whole stack."""

import re

from tests.system.processes import Processes, Shell
from tests.waiting import until
from tradewind.client import Client, CycleStatus
from tradewind.flow import Flow
from tradewind.standalone import Standalone


async def test_explain_shows_why_flows_and_nodes_wait(stack: Standalone) -> None:
    shell = Shell(stack.address)
    async with Client(stack.address) as client:
        await client.register_flow(
            "f",
            {
                "interval": "1h",
                "nodes": [{"id": "first", "type": "nobody"}, {"id": "second", "type": "nobody"}],
                "edges": [{"source": "first", "source_handle": "out", "target": "second", "target_handle": "in"}],
            },
        )
        assert "not_started: " in await shell("explain", "f")
        await client.run_flow("f")

        async def is_queued() -> bool:
            return [each.code for each in await client.explain_node("f", "first")] == ["no_live_worker", "queued"]

        await until(is_queued, "the node waits for a worker")
        assert 'no live worker offers node type "nobody"' in await shell("explain", "f", "first")
        lines = (await shell("explain", "f")).splitlines()
        assert lines[-1] == '  first (nobody): no live worker offers node type "nobody"'
        assert lines[-2].startswith("cycle_running: cycle 0 has been running since ")
        reasons = await shell.json("explain", "f", "0", "second")
        assert reasons[0]["facts"] == {"nodes": [{"node_id": "first", "status": "pending"}]}
        assert "no node task" in await shell("explain", "f", "0", "third", exit_code=2)
        assert "give FLOW" in await shell("explain", "f", "x", "y", exit_code=2)
        assert (await shell("explain", "f", "0")).splitlines() == [
            "cycle 0 is running",
            '  first (nobody): no live worker offers node type "nobody"',
        ]
        assert 'no cycle "f:7"' in await shell("explain", "f", "7", exit_code=2)
        ad_hoc = await client.submit_task("nobody")
        assert [each.code for each in await client.explain_node_task(ad_hoc.task_id)] == ["no_live_worker", "queued"]


async def test_explain_accepts_names_of_list_items_and_ad_hoc_tasks(client: Client, shell: Shell) -> None:
    flow = Flow("f", "1h")
    numbers = flow.node("numbers", "numbers", {"start": 7, "count": 2})
    wide = flow.node("wide", "nobody", map="item", max_parallel=1)
    numbers["numbers"] >> wide["item"]
    await client.register_flow("f", flow)
    await client.run_flow("f")

    async def is_queued() -> bool:
        return [each.code for each in await client.explain_node("f", "wide:0")] == ["no_live_worker", "queued"]

    await until(is_queued, "its list is split, and the first item waits for a worker")
    waits = "waits_for_items: waits until fewer than 1 of the earlier items are open"
    for name in (("f", "wide:1"), ("f", "0", "wide:1"), ("f:0:0:wide:1",)):
        assert (await shell("explain", *name)).splitlines() == [waits]
    assert "no_live_worker: " in await shell("explain", "f:0:0:wide:0")
    assert "items_open: 0 of its 2 items" in await shell("explain", "f:0:0:wide")
    assert "has 2 items, counted from 0" in await shell("explain", "f", "wide:2", exit_code=2)
    assert "queued: has been queued since" in await shell("explain", (await client.submit_task("nobody")).task_id)
    assert "is not <flow_id>:" in await shell("explain", "f:0:wide", exit_code=2)
    assert "give FLOW" in await shell("explain", "f:0:0:wide", "wide", exit_code=2)


async def test_explain_shows_first_open_nodes_of_cycle(stack: Standalone) -> None:
    shell = Shell(stack.address)
    async with Client(stack.address) as client:
        await client.register_flow(
            "f", {"interval": 0, "nodes": [{"id": f"n{at}", "type": "nobody"} for at in range(7)]}
        )
        handle = await client.run_flow("f")
        lines = (await shell("explain", "f")).splitlines()
        assert [line.split()[0] for line in lines[-6:-1]] == [f"n{at}" for at in range(5)]
        assert lines[-1] == "  and 2 more: tradewind cycle show f 0"
        assert [each["code"] for each in await shell.json("explain", "f")] == ["not_started", "cycle_running"]
        await handle.stop()
        assert "nobody" not in await shell("explain", "f")


async def test_killed_worker_is_reported_within_seconds(stack: Standalone, processes: Processes) -> None:
    shell = Shell(stack.address)
    worker = await processes.start_worker(stack.address, "--id", "w3")
    async with Client(stack.address) as client:
        await client.register_flow("f", {"interval": 0, "nodes": [{"id": "first", "type": "numbers"}]})
        assert (await (await client.run_flow("f")).wait(30)).status is CycleStatus.COMPLETED
        ((_, status, *_),) = rows(await shell("worker", "list"))
        assert status == "active"
        await worker.kill()
        await client.run_flow("f")

        async def is_reported() -> bool:
            return [each.code for each in await client.explain_node("f", "first")] == ["no_live_worker", "queued"]

        await until(is_reported, "the worker is reported as not connected", timeout=10)
        reason, _ = await client.explain_node("f", "first")
        assert (reason.facts["last_worker"], reason.facts["gone"]) == ("w3", [])
        message = (
            f'no live worker offers node type "numbers"; w3 offered it, and was connected until {reason.facts["until"]}'
        )
        assert reason.sentence == message
        assert f"  first (numbers): {message}" in (await shell("explain", "f")).splitlines()
        ad_hoc = await client.submit_task("numbers")
        assert [each.code for each in await client.explain_node_task(ad_hoc.task_id)] == ["no_live_worker", "queued"]
        ((name, status, *_),) = rows(await shell("worker", "list"))
        assert (name, status) == ("w3", "not connected")
        (listed,) = await shell.json("worker", "list")
        assert (listed["status"], listed["connected_since"]) == ("active", None)


def rows(table: str) -> list[list[str]]:
    """Return the cells of a printed table, without its header."""
    return [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()[1:]]


async def test_explain_lists_the_nodes_of_each_cycle_that_it_names(client: Client, shell: Shell) -> None:
    async def run(node_id: str, times: int) -> None:
        nodes = [{"id": node_id, "type": "nobody"}]
        await client.register_flow("f", {"interval": "1h", "overlap": "allow", "nodes": nodes})
        for _ in range(times):
            await client.run_flow("f")

    async def lines() -> list[str]:
        told = (await shell("explain", "f")).splitlines()
        return [re.sub(" since .*Z|: no live.*", "", line) for line in told if "not_started" not in line]

    await run("early", 1)
    await run("late", 2)
    told = [
        "cycle_running: cycle 0 has been running",
        "  early (nobody)",
        "cycle_running: cycle 1 has been running",
        "  late (nobody)",
        "cycle_running: cycle 2 has been running",
        "  late (nobody)",
    ]

    async def all_told() -> bool:
        return await lines() == told

    await until(all_told, "the nodes of all cycles wait for a worker")
    await run("late", 2)
    assert sum("more are running" in line for line in await lines()) == 1
    assert (await lines())[-2].endswith("; 2 more are running")
