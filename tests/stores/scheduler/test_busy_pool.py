"""What works while every connection of a store's pool is in use, for example by callers that wait for large answers."""

import asyncio
from typing import Any

from tests.servers import RedisServer
from tests.stores.scheduler.bench import Bench, redis_stores
from tradewind.scheduler.ports.waking import EVERY, WakeUp, Work
from tradewind.server.clock import ManualClock


async def test_cycles_are_read_and_partitions_kept_while_the_pool_is_exhausted(
    embedded: RedisServer, clock: ManualClock
) -> None:
    await embedded.flush()
    stores = redis_stores(embedded, clock)
    bench = Bench(stores, clock)
    await bench.register()
    state = await bench.begun()
    pool: Any = stores.states._client.connection_pool  # type: ignore[attr-defined]
    connections = [await pool.get_connection() for _ in range(pool.max_connections)]
    try:
        async with asyncio.timeout(5):
            assert await stores.states.load_many([state.name]) == [state]
            assert await stores.states.load_many([]) == []
            assert await stores.flows.owners(["f", "nobody's"]) == ["default", None]
            await stores.partitions.report_presence()
            await stores.wakes.publish(WakeUp(Work.SHARES, EVERY, 0))
    finally:
        for connection in connections:
            await pool.release(connection)
        await embedded.close_clients()
