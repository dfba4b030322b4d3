"""The event loop of simulations."""

import asyncio

import pytest

from tradewind.testing.virtual.loop import VirtualLoop


def test_task_group_cancels_in_the_order_of_creation() -> None:
    """A group keeps its tasks in a set, whose order would otherwise depend on their addresses."""
    cancelled: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.append(number)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(wait(number))
            await asyncio.sleep(0)
            raise ValueError("the end")

    with pytest.raises(ExceptionGroup), asyncio.Runner(loop_factory=lambda: VirtualLoop(0)) as runner:
        runner.run(main())
    assert cancelled == list(range(20))
