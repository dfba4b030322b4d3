"""Several replicas: one owns the partitions, another takes over."""

import time

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2
from tradewind.scheduler.stores.keys import ACL, Keys
from tradewind.server.partitions import PARTITIONS


async def owners(store: RedisServer) -> set[str]:
    """The replicas that own partitions."""
    client, keys = store.connect(ACL.name), Keys()
    found = [await client.hget(keys.owner(partition), "replica") for partition in range(PARTITIONS)]
    await client.aclose()
    return {name.decode() if name else "" for name in found}


async def test_one_replica_owns_everything_and_hands_it_over_when_it_leaves(
    start: Start, peers: Peers, embedded: RedisServer
) -> None:
    first = await start(scheduler_lease_seconds=60.0)
    await until(lambda: peers.triggers.listens("f"), "the first listens")
    second = await start(scheduler_lease_seconds=60.0)
    await second.register()
    (owner,) = await owners(embedded)
    await first.server.stop()

    async def taken_over() -> bool:
        return len(found := await owners(embedded)) == 1 and found != {owner}

    await until(taken_over, "the second owns everything")
    assert (await second.run()).status == cycle_pb2.CYCLE_STATUS_COMPLETED


async def test_a_dead_replica_is_replaced_when_its_leases_lapse(start: Start, peers: Peers) -> None:
    first = await start(scheduler_lease_seconds=1.0)
    await until(lambda: peers.triggers.listens("f"), "the first listens")
    peers.node_tasks.by_itself = False
    await first.register()
    await first.run(wait=0)
    second = await start(scheduler_lease_seconds=1.0)
    for task in first.service._tasks:
        task.cancel()
    await peers.node_tasks.finish(("f", 0, 0))
    assert (await second.ended()).status == cycle_pb2.CYCLE_STATUS_COMPLETED


async def test_a_sole_replica_takes_over_at_once(start: Start, peers: Peers) -> None:
    first = await start(scheduler_lease_seconds=600.0)
    await until(lambda: peers.triggers.listens("f"), "the first listens")
    await first.register()
    for task in first.service._tasks:
        task.cancel()
    begun = time.monotonic()
    second = await start(scheduler_lease_seconds=600.0, scheduler_sole=True)
    assert (await second.run()).status == cycle_pb2.CYCLE_STATUS_COMPLETED
    assert time.monotonic() - begun < 10


async def test_the_overtaken_owner_gives_up(start: Start, peers: Peers, scheduler: Client) -> None:
    await scheduler.register()
    second = await start(scheduler_sole=True)
    await until(lambda: not scheduler.service._own.epochs, "the first owns nothing any more")
    assert (await scheduler.run()).status == cycle_pb2.CYCLE_STATUS_COMPLETED
    assert (await second.run()).status == cycle_pb2.CYCLE_STATUS_COMPLETED
    assert (await second.flow()).status == flow_pb2.FLOW_STATUS_REGISTERED
