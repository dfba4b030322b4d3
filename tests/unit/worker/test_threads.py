"""Threads that do not end are given up, replaced and counted."""

import asyncio
import functools
import threading
from collections.abc import Iterator

import pytest

from tests.waiting import until
from tradewind.worker import threads
from tradewind.worker.threads import ThreadPool


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count a thread as stuck as soon as it is given up."""
    monkeypatch.setattr(threads, "STUCK_AFTER", 0)


@pytest.fixture
def end() -> Iterator[threading.Event]:
    """Ends the calls that a test has left stuck."""
    event = threading.Event()
    yield event
    event.set()


async def stick(pool: ThreadPool, end: threading.Event) -> None:
    """Occupy a thread until `end` and give up waiting for it."""
    begun = threading.Event()

    def call() -> None:
        begun.set()
        end.wait(30)

    waiting = asyncio.create_task(pool.run(call))
    await until(begun.is_set, "the call runs")
    waiting.cancel()
    await asyncio.wait((waiting,))


async def test_stuck_thread_does_not_reduce_capacity(end: threading.Event, caplog: pytest.LogCaptureFixture) -> None:
    pool = ThreadPool(1)
    await stick(pool, end)
    await stick(pool, end)

    assert await pool.run(lambda: 42) == 42
    await until(
        lambda: "threads stuck although their nodes were told to stop: 2;" in caplog.text, "the count is logged"
    )
    pool.close()


async def test_calls_queued_behind_stuck_one_run_in_another_thread(end: threading.Event) -> None:
    pool = ThreadPool(1)
    begun = threading.Event()

    def call() -> None:
        begun.set()
        end.wait(30)

    stuck = asyncio.create_task(pool.run(call))
    await until(begun.is_set, "the only thread is taken")
    behind = [asyncio.create_task(pool.run(functools.partial(int, index))) for index in range(3)]
    await asyncio.sleep(0)
    stuck.cancel()

    assert await asyncio.gather(*behind) == [0, 1, 2]
    pool.close()


async def test_stuck_thread_that_ends_does_not_raise_capacity(end: threading.Event) -> None:
    pool = ThreadPool(1)
    await stick(pool, end)
    end.set()
    meeting = threading.Barrier(2)
    both = [asyncio.create_task(pool.run(functools.partial(meeting.wait, 0.05))) for _ in range(2)]

    with pytest.raises(threading.BrokenBarrierError):
        await both[0]
    await asyncio.gather(*both, return_exceptions=True)
    pool.close()


async def test_queued_call_that_is_cancelled_never_begins(end: threading.Event) -> None:
    stuck_counts: list[int] = []
    pool = ThreadPool(1, stuck_limit=1, too_many_stuck=stuck_counts.append)
    calls: list[int] = []
    begun = threading.Event()

    def call() -> None:
        begun.set()
        end.wait(30)

    first = asyncio.create_task(pool.run(call))
    await until(begun.is_set, "the only thread is taken")
    second = asyncio.create_task(pool.run(functools.partial(calls.append, 2)))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait((second,))
    end.set()
    await first
    await pool.run(lambda: None)

    assert calls == []
    assert stuck_counts == []
    pool.close()


async def test_limit_counts_only_currently_stuck_threads(end: threading.Event) -> None:
    stuck_counts: list[int] = []
    pool = ThreadPool(2, stuck_limit=2, too_many_stuck=stuck_counts.append)
    early = threading.Event()
    await stick(pool, early)
    early.set()
    await until(lambda: not pool._stuck, "the first has ended after all")
    await stick(pool, end)
    assert stuck_counts == []
    await stick(pool, end)
    await until(lambda: stuck_counts, "the limit is reported")

    assert stuck_counts == [2]
    pool.close()


async def test_thread_that_ends_soon_after_cancellation_is_not_stuck(
    end: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "STUCK_AFTER", 0.5)
    pool = ThreadPool(1)
    await stick(pool, end)
    end.set()
    time_passed = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.8, time_passed.set_result, None)
    await time_passed

    assert caplog.text == ""
    pool.close()


class Refused:
    """A thread that the system has no room for."""

    def __init__(self, **options: object) -> None:
        """Take the same arguments as threading's."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


async def test_call_fails_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ThreadPool(1)
    called: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", Refused)
        with pytest.raises(RuntimeError, match="the system cannot start another thread"):
            await pool.run(lambda: called.append("first"))

    async with asyncio.timeout(10):
        await pool.run(lambda: called.append("second"))
    assert called == ["second"]
    pool.close()


async def test_call_waits_for_running_thread_if_no_other_can_be_started(
    monkeypatch: pytest.MonkeyPatch, end: threading.Event
) -> None:
    pool = ThreadPool(2)
    first = asyncio.create_task(pool.run(lambda: end.wait(30)))
    await asyncio.sleep(0)
    monkeypatch.setattr(threading, "Thread", Refused)
    second = asyncio.create_task(pool.run(lambda: 42))
    await asyncio.sleep(0)
    end.set()

    assert await first
    assert await second == 42
    pool.close()
