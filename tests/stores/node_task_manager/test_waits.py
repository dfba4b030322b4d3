"""What the contract says about looking up what a single node task waits behind, for every store."""

import pytest

from tests.stores.node_task_manager.shards import Bench, held, plan_of


@pytest.mark.parametrize("most", [0, 2, 10])
async def test_holders_are_listed_up_to_the_requested_number(bench: Bench, most: int) -> None:
    await bench.submit(plan_of("a b c"))
    assert len(await bench.take()) == 3
    holders = await bench.shard.holders("running", most)
    assert (holders.count, len(holders.task_ids)) == (3, min(most, 3))


async def test_running_node_tasks_are_listed_by_the_end_of_their_leases(bench: Bench) -> None:
    await bench.submit(plan_of("a b"))
    (first,) = await bench.take(1)
    bench.clock.advance(5_000)
    (second,) = await bench.take(1)
    await bench.shard.renew("w1", 0, held(first))
    bench.clock.advance(5_000)
    await bench.shard.renew("w1", 0, held(first))
    assert (await bench.shard.holders("running", 10)).task_ids == (second.task_id, first.task_id)
