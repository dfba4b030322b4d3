"""The services that run flows, each over a store of its own: they share no keys, and go on when a store dies."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from tests.ports import free_port
from tests.servers import NEVER_HELD_BACK
from tests.servers import SERVICES as USERS
from tests.system.flows import gated, sums
from tests.system.processes import NODES
from tests.system.test_data_version import SERVICES
from tests.waiting import until
from tradewind.client import Addresses, Client
from tradewind.server.bootstrap import Server
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.worker import Worker, load_nodes

STARTED = {name: service for name, service in SERVICES.items() if name != "access"}
"""Services in an order in which each is started after those that it calls."""


class Stores(dict[str, EmbeddedStore]):
    """The store of each service, which has no user for any other service."""

    async def restart(self, name: str) -> None:
        """Kill a store and start it again over its data."""
        pid = self[name].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await self[name].stop()
        await self[name].start()


@pytest_asyncio.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    stores = Stores()
    async with contextlib.AsyncExitStack() as stack:
        for user in USERS:
            if user.name in STARTED:
                directory = tmp_path / user.name
                store = EmbeddedStore(directory, port=free_port(), acl_users=[user], options=NEVER_HELD_BACK)
                await store.start()
                stack.push_async_callback(store.stop)
                stores[user.name] = store
        yield stores


@pytest_asyncio.fixture
async def client(stores: Stores) -> AsyncIterator[Client]:
    """A client of services over stores of their own, which have a worker."""
    addresses: dict[str, str] = {}
    async with contextlib.AsyncExitStack() as stack:
        for name, (settings, service, _) in STARTED.items():
            peers = {f"{peer}_address": address for peer, address in addresses.items()}
            known: dict[str, Any] = {field: peers[field] for field in settings.model_fields if field in peers}
            server = Server([service(settings(store_url=stores[name].url_for(name), port=0, **known))], drain_s=2)
            await server.start()
            stack.push_async_callback(server.stop)
            addresses[name] = server.address
        del addresses["trigger"]
        manager, registry = addresses["node_task_manager"], addresses["registry"]
        await stack.enter_async_context(Worker(load_nodes(NODES), address=manager, registry_address=registry))
        yield await stack.enter_async_context(Client(addresses=Addresses(**addresses)))


async def test_services_share_no_store_and_survive_the_death_of_each(
    client: Client, stores: Stores, tmp_path: Path
) -> None:
    opened = tmp_path / "opened"
    await client.register_flow("gated", gated(opened))
    held = await client.run_flow("gated")
    await client.register_flow("sums", sums("1s", "allow"))
    await client.start_flow("sums")
    done = 0
    for name in stores:
        await stores.restart(name)
        done = await completed(client, done + 2)
    opened.touch()
    assert await held.result(30)
    # The run went on as it was: the gate had one attempt.
    assert {node.attempt for node in (await held.describe()).nodes} == {1}
    handle = await client.run_flow("sums", wait=30)
    assert (await handle.result(30))["sort"]
    await client.stop_flow("sums")
    cycles = [cycle async for cycle in client.list_cycles("sums")]
    assert [cycle.cycle for cycle in cycles] == list(range(len(cycles)))[::-1]
    assert {cycle.status for cycle in cycles} <= {"completed", "cancelled"}
    assert await client.delete_flow("sums")


async def completed(client: Client, least: int) -> int:
    """Return how many cycles have completed, once these are at least so many."""
    done: list[int] = []

    async def enough() -> bool:
        done[:] = [each.cycle async for each in client.list_cycles("sums", statuses=["completed"])]
        return len(done) >= least

    await until(enough, f"{least} cycles have completed")
    return len(done)
