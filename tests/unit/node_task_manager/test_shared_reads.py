"""Reads that many callers want: done once for all, and never older than the question."""

import asyncio

import pytest

from tradewind.node_task_manager.use_cases.shared_reads import SharedReads


async def test_waiting_callers_share_one_read_that_begins_after_their_request() -> None:
    shared: SharedReads[int] = SharedReads()
    now, gate, reads = [1], asyncio.Event(), []

    async def read() -> int:
        reads.append(now[0])
        seen = now[0]
        await gate.wait()
        return seen

    first = asyncio.create_task(shared("k", read))
    while not reads:
        await asyncio.sleep(0)
    now[0] = 2
    later = [asyncio.create_task(shared(key, read)) for key in "kkkl"]
    await asyncio.sleep(0)
    gate.set()
    assert await first == 1
    assert await asyncio.gather(*later) == [2, 2, 2, 2]
    assert reads == [1, 2, 2]


async def test_failed_read_fails_only_its_own_callers() -> None:
    shared: SharedReads[int] = SharedReads()

    async def broken() -> int:
        raise LookupError("gone")

    async def well() -> int:
        return 5

    outcomes = await asyncio.gather(shared("a", broken), shared("b", well), return_exceptions=True)
    assert isinstance(outcomes[0], LookupError)
    assert outcomes[1] == 5
    with pytest.raises(LookupError):
        await shared("a", broken)
