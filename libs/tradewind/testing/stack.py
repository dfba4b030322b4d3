"""A whole stack for one test: every service, a worker with the test's nodes, and a client."""

import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tradewind.client import Client
from tradewind.standalone import Standalone
from tradewind.testing.environment import no_settings, set_address
from tradewind.worker import Node, Worker
from tradewind.worker.offered import as_list, by_type


@asynccontextmanager
async def running_stack(nodes: Iterable[Node[..., Any]] | Node[..., Any]) -> AsyncIterator[Client]:
    """Run every service over an embedded store of its own, and a worker that offers `nodes`; yield a client.

    All of it runs in this process, listens on loopback, and is gone after the block. Only secrets of nodes come from
    the environment, in which TRADEWIND_ADDRESS leads to this stack: so do clients that nodes make. What the test sets
    there meanwhile stays. Takes about a second to start. Raises NodeDefinitionError for what is not a node.
    """
    offered = list(by_type(as_list(nodes)).values())
    async with AsyncExitStack() as block:
        home = block.enter_context(tempfile.TemporaryDirectory(prefix="tradewind-test-"))
        block.enter_context(no_settings())
        stack = await block.enter_async_context(Standalone(Path(home) / "store", port=0))
        block.enter_context(set_address(stack.address))
        await block.enter_async_context(Worker(offered))
        yield await block.enter_async_context(Client())
