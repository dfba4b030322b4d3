"""Clients in several event loops of one process, each in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from tests.unit.client.background_stack import background_stack
from tradewind.client import Client, SyncClient

TIMES = 5


def use_async(address: str) -> None:
    async def use() -> None:
        async with Client(address) as client:
            await client.run_flow("momentum")
            await anext(client.watch_flows("momentum"))

    asyncio.run(use())


def use_sync(address: str) -> None:
    with SyncClient(address) as client:
        client.run_flow("momentum")
        next(client.watch_flows("momentum"))


@pytest.mark.parametrize("use", [use_async, use_sync])
def test_closing_a_client_leaves_nothing_to_the_loops_of_others(
    use: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    """What gRPC reported too late would be logged by another loop, here that of the stack, as an exception."""
    with background_stack() as stack:

        def repeat() -> None:
            for _ in range(TIMES):
                use(stack.address)

        threads = [threading.Thread(target=repeat) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert stack.scheduler.streams == 4 * TIMES
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
