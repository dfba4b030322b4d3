"""What is printed while a command waits for a cycle."""

import asyncio

import pytest

from tests.unit.client.fake_stack import FakeStack
from tests.waiting import until
from tradewind.cli import outcomes
from tradewind.cli.screen import Format, Screen
from tradewind.client import Client


async def test_nodes_that_begin_to_wait_later_are_noted_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = [[], [], ["  ask (approval): waits for an answer"], ["  ask (approval): waits for an answer"]]
    monkeypatch.setattr(outcomes, "_NOTE_AFTER_S", 0.0)
    monkeypatch.setattr(outcomes, "waiting_node_lines", lambda _: looks.pop(0))
    stack = FakeStack()
    stack.scheduler.add_flow("momentum")
    stack.scheduler.ending = None
    await stack.start()
    try:
        async with Client(stack.address) as client:
            handle = await client.run_flow("momentum")
            waiting = asyncio.create_task(outcomes.wait_for_outcome(Screen(), client, handle, None, Format.TEXT))
            await until(lambda: len(looks) == 1, "somebody looks until a node waits")
            await stack.scheduler.end("momentum", 0)
            await waiting
    finally:
        await stack.stop()

    assert capsys.readouterr().err == "note: ask (approval): waits for an answer\n"
