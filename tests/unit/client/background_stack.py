"""A fake stack for tests that block: it runs in a thread of its own."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.unit.client.fake_stack import FakeStack
from tradewind.client.background_loop import BackgroundLoop


@contextmanager
def background_stack() -> Iterator[FakeStack]:
    """Yield a fake stack with the flow `momentum`."""
    loop = BackgroundLoop()
    stack = FakeStack()
    stack.scheduler.add_flow("momentum")
    loop.wait(stack.start())
    try:
        yield stack
    finally:
        loop.wait(stack.stop())
        loop.close()
