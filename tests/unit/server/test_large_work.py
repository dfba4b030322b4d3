"""Large work in a thread: the loop goes on, small work stays where it is."""

import asyncio
import threading
from contextvars import ContextVar

import pytest

from tradewind.server.large_work import in_thread_if

WHOSE: ContextVar[str] = ContextVar("whose", default="nobody's")


async def test_loop_goes_on_while_large_work_is_done() -> None:
    turn = threading.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    assert await in_thread_if(True, turn.wait, 60)


async def test_small_work_is_done_at_once() -> None:
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(turns.append, "another's")
    assert await in_thread_if(False, threading.get_ident) == threading.get_ident()
    assert turns == []


async def test_large_work_is_done_piece_by_piece() -> None:
    free, turn = threading.Lock(), threading.Event()

    def alone() -> bool:
        with_nobody = free.acquire(blocking=False)
        turn.wait(60)
        free.release()
        return with_nobody

    asyncio.get_running_loop().call_later(0, turn.set)
    assert await asyncio.gather(*(in_thread_if(True, alone) for _ in range(3))) == [True] * 3


async def test_large_work_is_done_in_the_callers_context_and_may_fail() -> None:
    WHOSE.set("mine")
    assert await in_thread_if(True, WHOSE.get) == "mine"
    with pytest.raises(ValueError, match="invalid literal"):
        await in_thread_if(True, int, "seven")
