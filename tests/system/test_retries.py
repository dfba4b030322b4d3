"""Nodes that fail, seen over a whole stack: the client and the commands."""

import re

from tests.system.processes import Shell
from tests.waiting import until
from tradewind.client import Client, CycleStatus, NodeTaskStatus
from tradewind.flow import Flow, Retry


def failing(retry: Retry) -> Flow:
    """Return a flow of one node that always fails."""
    flow = Flow("failing", "1h")
    flow.node("bad", "failing", {"total": 3}, retry=retry)
    return flow


async def test_node_waiting_for_next_attempt_shows_it(client: Client, shell: Shell) -> None:
    await client.register_flow("failing", failing(Retry(3, "60s", jitter=0)))
    await client.run_flow("failing")

    async def waits() -> bool:
        described = await client.describe_cycle("failing", 0)
        return described.nodes[0].retry_at is not None

    await until(waits, "the first attempt has failed")
    (node,) = (await client.describe_cycle("failing", 0)).nodes
    assert (node.status, node.failures, node.max_attempts) == (NodeTaskStatus.PENDING, 1, 3)
    assert node.last_error is not None
    assert (node.last_error.type, node.last_error.message) == ("ValueError", "will not have 3")
    shown = await shell("task", "show", "failing:0:0:bad")
    assert re.search(r"failed +1 of 3 attempts\n", shown)
    assert re.search(r"next attempt +\S", shown)
    assert "last failed attempt: ValueError: will not have 3" in shown
    assert re.search(r"bad +failing +pending .*attempt 2 of 3 begins at", await shell("cycle", "show", "failing"))
    await client.flow("failing").stop()

    async def ended() -> bool:
        return (await client.get_cycle("failing", 0)).status is CycleStatus.CANCELLED

    await until(ended, "the cycle has ended")


async def test_dead_letters_are_listed_and_flow_nodes_are_not_redriven(client: Client, shell: Shell) -> None:
    await client.register_flow("failing", failing(Retry(2, "10ms")))
    handle = await client.run_flow("failing")
    assert (await handle.wait(20)).status is CycleStatus.FAILED
    listed = await shell("dead-letter", "list")
    assert re.search(r"failing:0:0:bad +failing .* 2 +ValueError: will not have 3", listed)
    (letter,) = await shell.json("dead-letter", "list")
    assert [past["code"] for past in letter["history"]] == ["NODE_ERROR", "NODE_ERROR"]
    assert "not tried again: all 2 attempts failed" in await shell("task", "show", "failing:0:0:bad")
    reason = "ValueError: will not have 3(;|,) not tried again: all 2 attempts failed"
    assert re.search(rf"bad +failing +failed .*{reason}", await shell("cycle", "show", "failing"))
    assert re.search(reason, await shell("explain", "failing"))
    output = await shell("dead-letter", "redrive", "failing:0:0:bad", exit_code=1)
    assert 'is a node of cycle 0 of flow "failing": rerun that cycle' in output
