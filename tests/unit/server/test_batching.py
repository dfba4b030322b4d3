"""Natural batching: what is flushed together, who gets what, and how it ends."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from tests.waiting import until
from tradewind.server.batching import Batcher


class Flushes:
    """A flush that doubles its items, records its batches and can be held open or made to fail."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None

    async def __call__(self, items: list[int]) -> list[int]:
        self.batches.append(items)
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return [2 * item for item in items]


async def test_items_submitted_together_form_one_batch() -> None:
    flushes = Flushes()
    batcher = Batcher(flushes)
    assert await asyncio.gather(*(batcher.submit(item) for item in range(5))) == [0, 2, 4, 6, 8]
    assert flushes.batches == [[0, 1, 2, 3, 4]]


async def test_items_that_arrive_during_a_flush_form_the_next_batch() -> None:
    flushes = Flushes()
    batcher = Batcher(flushes)
    flushes.open.clear()
    first = batcher.submit(1)
    while not flushes.batches:
        await asyncio.sleep(0)
    later = [batcher.submit(item) for item in (2, 3, 4)]
    assert batcher.waiting == 3
    flushes.open.set()
    assert await asyncio.gather(first, *later) == [2, 4, 6, 8]
    assert flushes.batches == [[1], [2, 3, 4]]


async def test_batch_has_at_most_max_items() -> None:
    flushes = Flushes()
    batcher = Batcher(flushes, max_items=2)
    await asyncio.gather(*(batcher.submit(item) for item in range(5)))
    assert flushes.batches == [[0, 1], [2, 3], [4]]


async def test_batch_is_limited_by_weight_and_too_heavy_item_goes_alone() -> None:
    flushes = Flushes()
    batcher = Batcher(flushes, weigh=lambda item: item, max_weight=10)
    await asyncio.gather(*(batcher.submit(item) for item in (4, 6, 1, 99, 3)))
    assert flushes.batches == [[4, 6], [1], [99], [3]]


async def test_urgent_items_precede_others_and_keep_their_order() -> None:
    flushes = Flushes()
    batcher = Batcher(flushes, max_items=2)
    flushes.open.clear()
    first = batcher.submit(1)
    while not flushes.batches:
        await asyncio.sleep(0)
    later = [batcher.submit(2), batcher.submit(3), *(batcher.submit(item, urgent=True) for item in (4, 5, 6))]
    flushes.open.set()
    assert await asyncio.gather(first, *later) == [2, 4, 6, 8, 10, 12]
    assert flushes.batches == [[1], [4, 5], [6, 2], [3]]
    later = [batcher.submit(7), batcher.submit(8, urgent=True)]
    assert await asyncio.gather(*later) == [14, 16]
    assert flushes.batches[4:] == [[8, 7]]


async def test_flush_failure_reaches_every_caller_of_its_batch_and_no_other() -> None:
    flushes = Flushes()
    batcher = Batcher(flushes, max_items=2)
    flushes.error = ValueError("the store said no")
    results = await asyncio.gather(batcher.submit(1), batcher.submit(2), return_exceptions=True)
    assert [str(result) for result in results] == ["the store said no"] * 2
    flushes.error = None
    assert await batcher.submit(3) == 6


async def test_flush_with_too_few_results_fails_its_callers() -> None:
    async def drop_first(items: list[int]) -> list[int]:
        return items[1:]

    with pytest.raises(RuntimeError, match="flush of 1 items returned 0 results"):
        await Batcher(drop_first).submit(1)


async def test_cancelled_caller_withdraws_item_that_still_waits() -> None:
    flushes = Flushes()
    batcher = Batcher(flushes)
    flushes.open.clear()
    first = batcher.submit(1)
    while not flushes.batches:
        await asyncio.sleep(0)
    withdrawn, kept = batcher.submit(2), batcher.submit(3)
    withdrawn.cancel()
    first.cancel()
    flushes.open.set()
    assert await kept == 6
    assert flushes.batches == [[1], [3]]


async def test_nothing_is_flushed_when_every_caller_has_withdrawn() -> None:
    flushes = Flushes()
    batcher = Batcher(flushes)
    batcher.submit(1).cancel()
    await batcher.close()
    assert flushes.batches == []


async def test_cancelled_flush_leaves_no_caller_waiting() -> None:
    flushes = Flushes()
    batcher = Batcher(flushes)
    flushes.open.clear()
    flushed = batcher.submit(1)
    await until(lambda: flushes.batches, "a flush is under way")
    waiting = batcher.submit(2)
    # As at the end of a loop, which cancels what still runs.
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    task.cancel()
    await asyncio.wait([task, flushed, waiting])
    assert flushed.cancelled()
    assert waiting.cancelled()
    assert task.cancelled()
    flushes.open.set()
    assert await batcher.submit(3) == 6
    assert flushes.batches == [[1], [3]]


async def test_idle_batcher_leaves_no_task_running() -> None:
    batcher = Batcher(Flushes())
    await batcher.submit(1)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_flush_does_not_run_in_context_of_first_caller() -> None:
    caller: ContextVar[str] = ContextVar("caller", default="nobody")

    async def report_caller(items: list[int]) -> list[str]:
        return [caller.get()] * len(items)

    caller.set("first")
    assert await Batcher(report_caller).submit(1) == "nobody"


async def test_close_flushes_submitted_items_and_rejects_new_ones() -> None:
    flushes = Flushes()
    batcher = Batcher(flushes, max_items=1)
    futures = [batcher.submit(item) for item in (1, 2)]
    await batcher.close()
    assert [future.result() for future in futures] == [2, 4]
    with pytest.raises(RuntimeError, match="closed"):
        await batcher.submit(3)
    await batcher.close()


def test_max_items_must_be_at_least_1() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Batcher(Flushes(), max_items=0)


async def test_batch_waits_for_gate_and_includes_items_that_arrive_meanwhile() -> None:
    flushes, gate = Flushes(), asyncio.Event()

    async def wait_until_open() -> None:
        await gate.wait()

    batcher = Batcher(flushes, gate=wait_until_open)
    first = batcher.submit(1)
    await asyncio.sleep(0)
    second = batcher.submit(2)
    assert flushes.batches == []
    gate.set()
    assert (await first, await second) == (2, 4)
    assert flushes.batches == [[1, 2]]


async def test_gate_is_awaited_after_callers_of_previous_batch_have_resumed() -> None:
    events: list[object] = []
    flushed = asyncio.Event()

    async def gate() -> None:
        events.append("gate")

    async def flush(items: list[int]) -> list[int]:
        events.append(items)
        await flushed.wait()
        return items

    batcher = Batcher(flush, gate=gate)

    async def wait_for_the_first() -> None:
        await batcher.submit(1)
        events.append("resumed")

    waiting = asyncio.create_task(wait_for_the_first())
    await until(lambda: [1] in events, "the first batch is under way")
    second = batcher.submit(2)
    flushed.set()
    await second
    await waiting
    assert events == ["gate", [1], "resumed", "gate", [2]]


@pytest.mark.parametrize("batcher_of", [{"max_items": 2}, {"weigh": lambda item: item, "max_weight": 3}])
async def test_a_full_batch_does_not_wait_for_the_gate(batcher_of: dict[str, Any]) -> None:
    async def never() -> None:
        raise AssertionError("a full batch has nothing to wait for")

    batcher = Batcher(Flushes(), gate=never, **batcher_of)
    first, second = batcher.submit(1), batcher.submit(2)
    assert (await first, await second) == (2, 4)
