"""The progress of running cycles."""

import asyncio

import grpc
import pytest

from tests.unit.client.fake_stack import FakeStack
from tests.unit.client.refusal import Refusal
from tradewind.cli import progress
from tradewind.cli.screen import Format, Screen
from tradewind.client import Client, CycleRecord, CycleStatistics


class Live(progress.Display):
    """Notes that a cycle advances."""

    live = True

    def __init__(self) -> None:
        self.advanced = asyncio.Event()

    def show(self, cycle: CycleRecord) -> None:
        """Show nothing."""

    def advance(self, cycle: CycleRecord, statistics: CycleStatistics) -> None:
        self.advanced.set()


@pytest.mark.parametrize("code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL])
async def test_bars_go_on_after_an_error(
    stack: FakeStack, monkeypatch: pytest.MonkeyPatch, code: grpc.StatusCode
) -> None:
    display = Live()
    monkeypatch.setattr(progress, "display_for", lambda screen, output: display)
    monkeypatch.setattr(progress, "POLL_INTERVAL_S", 0.01)
    stack.scheduler.ending = None
    async with Client(stack.address) as client:
        await client.run_flow("momentum")
        stack.scheduler.refusals.extend([None, Refusal(code)])  # The first is for the request to watch.
        watching = progress.watch_cycles(Screen(), client, client.watch_flows("momentum"), Format.TEXT)
        task = asyncio.create_task(watching)
        async with asyncio.timeout(10):
            await display.advanced.wait()
        assert not stack.scheduler.refusals
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
