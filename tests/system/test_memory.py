"""Variables of flows and cycles from the command line."""

import pytest

from tests.system.processes import Shell
from tradewind.client import Aborted, Client, Exhausted, NotFound, WrongStatus
from tradewind.flow import Flow


async def test_variables_are_shown_and_changed(client: Client, shell: Shell) -> None:
    flow = Flow("kept", "1h")
    flow.node("numbers", "numbers", {"start": 0, "count": 1})
    await client.register_flow("kept", flow)
    changed = await shell.json("flow", "memory", "kept", "--set", "cursor=17", "--set", "book=IBM", "--set", "gone=[1]")
    assert changed == {"variables": {"cursor": 17, "book": "IBM", "gone": [1]}, "version": 1}
    assert await client.update_memory("kept", delete=["gone"], expected_version=1) == 2
    assert (await shell.json("flow", "memory", "kept"))["variables"] == {"cursor": 17, "book": "IBM"}
    with pytest.raises(Aborted, match="read it again"):
        await client.update_memory("kept", {"cursor": 18}, expected_version=1)
    with pytest.raises(Exhausted, match="64 KiB"):
        await client.update_memory("kept", {"large": "x" * 70_000})
    run = await client.run_flow("kept")
    await run.wait(60)
    assert (await client.get_memory("kept", cycle=0)).variables == {}
    with pytest.raises(WrongStatus, match="has ended"):
        await client.update_memory("kept", {"a": 1}, cycle=0)
    with pytest.raises(NotFound):
        await client.get_memory("nobody")
