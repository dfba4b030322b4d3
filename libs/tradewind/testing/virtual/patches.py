"""Replaces the machine's clock and randomness for code on a virtual loop; other threads keep the real ones."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from tradewind.testing.virtual.loop import VirtualLoop


@contextmanager
def virtual_clock_and_randomness(loop: VirtualLoop, seed: int) -> Iterator[None]:
    """Make `time`, `random`, `secrets`, `os.urandom` and `uuid.uuid4` follow the loop's time and `seed` on `loop`.

    `datetime.now` cannot be replaced and tells the machine's time.
    """
    generator = random.Random(seed)
    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        (time, "time", lambda: loop.epoch_ns / 1e9),
        (time, "time_ns", lambda: loop.epoch_ns),
        (time, "monotonic", lambda: loop.now_ns / 1e9),
        (time, "monotonic_ns", lambda: loop.now_ns),
        (time, "perf_counter", lambda: loop.now_ns / 1e9),
        (time, "perf_counter_ns", lambda: loop.now_ns),
        (os, "urandom", generator.randbytes),
        (random, "_urandom", generator.randbytes),  # of SystemRandom, hence of secrets
    ]
    with ExitStack() as stack:
        # Nodes may have imported single functions, such as gauss, which use this state.
        stack.callback(random.setstate, random.getstate())
        random.seed(generator.getrandbits(64))
        for module, name, virtual in replaced:
            stack.enter_context(patch.object(module, name, _either(loop, getattr(module, name), virtual)))
        yield


def _either(loop: VirtualLoop, real: Callable[..., Any], virtual: Callable[..., Any]) -> Callable[..., Any]:
    ident, own = threading.get_ident, loop.thread

    def function(*args: Any) -> Any:
        return virtual(*args) if ident() == own else real(*args)

    return function
