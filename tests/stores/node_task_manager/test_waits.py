"""What the contract says about looking up what a single node task waits behind, for every store."""

import pytest

from tests.servers import RedisServer
from tests.stores.node_task_manager.shards import Bench, held, plan_of
from tradewind.node_task_manager.ports.explaining import WaitReader
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.node_task_manager.stores.memory import MemoryShard
from tradewind.node_task_manager.stores.redis_waits import RedisWaits


@pytest.fixture
def waits(bench: Bench, store: RedisServer | None) -> WaitReader:
    """The reader under test."""
    if store is not None:
        return RedisWaits(store.connect("node_task_manager"), Keys("trading_flow", 0))
    assert isinstance(bench.shard, MemoryShard)
    return bench.shard


@pytest.mark.parametrize("most", [0, 2, 10])
async def test_holders_are_listed_up_to_the_requested_number(bench: Bench, waits: WaitReader, most: int) -> None:
    await bench.submit(plan_of("a b c"))
    assert len(await bench.take()) == 3
    holders = await waits.holders("running", most)
    assert (holders.count, len(holders.task_ids)) == (3, min(most, 3))


async def test_running_node_tasks_are_listed_by_the_end_of_their_leases(bench: Bench, waits: WaitReader) -> None:
    await bench.submit(plan_of("a b"))
    (first,) = await bench.take(1)
    bench.clock.advance(5_000)
    (second,) = await bench.take(1)
    await bench.shard.renew("w1", 0, held(first))
    bench.clock.advance(5_000)
    await bench.shard.renew("w1", 0, held(first))
    assert (await waits.holders("running", 10)).task_ids == (second.task_id, first.task_id)
