"""A whole stack for one test: every service, a worker with the test's nodes, and a client."""

import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tradewind.client import Client
from tradewind.standalone import Standalone
from tradewind.worker import Node, Worker


@asynccontextmanager
async def running_stack(nodes: Iterable[Node[..., Any]]) -> AsyncIterator[Client]:
    """Run every service over an embedded store of its own, and a worker that offers `nodes`; yields a client.

    All of it is in this process, listens on loopback, and is gone with the block, whatever store or servers the
    environment names. Takes about a second to start.
    """
    with tempfile.TemporaryDirectory(prefix="tradewind-test-") as home:
        async with (
            Standalone(Path(home) / "store", host="127.0.0.1", port=0, store_url="", auth=False) as stack,
            Worker(
                list(nodes),
                address=stack.address,
                registry_address=stack.address,
                scheduler_address=stack.address,
            ),
            Client(stack.address) as client,
        ):
            yield client
