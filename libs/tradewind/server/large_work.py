"""Work that takes long because what somebody sent is large: others must not wait for it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LARGE_BYTES = 16 * 1024
"""From so many bytes on, checking or converting a definition takes some 5 ms or more."""

_thread = ThreadPoolExecutor(1, "large-work")


async def in_thread_if(large: bool, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call a function that computes, in a thread if the work is `large`; otherwise without letting others have a turn.

    All large work of a process shares one thread: while several compute, each of them takes its turn, of up to 5 ms,
    before the event loop's.
    """
    if not large:
        return function(*args, **options)
    call = partial(copy_context().run, partial(function, *args, **options))
    return await asyncio.get_running_loop().run_in_executor(_thread, call)
