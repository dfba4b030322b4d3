"""Several replicas: they share the partitions, and one takes over from another."""

import time
from collections import Counter

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2
from tradewind.scheduler.stores.keys import ACL, Keys
from tradewind.server.partitions import PARTITIONS


async def owners(store: RedisServer) -> list[str]:
    """Return the replica that owns each partition, "" where none does."""
    client, keys = store.connect(ACL.name), Keys()
    here = await client.zrange(keys.replicas(), 0, -1)
    found = [await client.hget(keys.owner(partition), "replica") for partition in range(PARTITIONS)]
    await client.end()
    return [replica.decode() if replica and replica in here else "" for replica in found]


async def wait_until_shared(store: RedisServer, *shares: int) -> set[str]:
    """Wait until the replicas own exactly these numbers of partitions; return their names."""
    seen: list[Counter[str]] = []

    async def shared() -> bool:
        seen.append(Counter(await owners(store)))
        return sorted(seen[-1].values()) == sorted(shares) and "" not in seen[-1]

    await until(shared, f"partitions are shared {shares}")
    return set(seen[-1])


async def test_partitions_are_shared_evenly_as_replicas_come_and_go(
    start: Start, peers: Peers, embedded: RedisServer
) -> None:
    first = await start(scheduler_lease_seconds=3.0)
    (alone,) = await wait_until_shared(embedded, 16)
    second = await start(scheduler_lease_seconds=3.0)
    two = await wait_until_shared(embedded, 8, 8)
    assert alone in two
    await start(scheduler_lease_seconds=3.0)
    assert two < await wait_until_shared(embedded, 5, 5, 6)
    await second.register()
    assert (await second.run()).status == cycle_pb2.CYCLE_STATUS_COMPLETED
    await first.server.stop()
    left = await wait_until_shared(embedded, 8, 8)
    assert alone not in left
    assert (await second.run()).status == cycle_pb2.CYCLE_STATUS_COMPLETED


async def test_a_dead_replica_is_replaced_when_its_leases_lapse(start: Start, peers: Peers) -> None:
    first = await start(scheduler_lease_seconds=1.0)
    await until(lambda: peers.triggers.listens("f"), "the first listens")
    peers.node_tasks.automatic = False
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
    second = await start(scheduler_lease_seconds=600.0, scheduler_single_replica=True)
    assert (await second.run()).status == cycle_pb2.CYCLE_STATUS_COMPLETED
    assert time.monotonic() - begun < 10


async def test_replica_wrongly_started_as_sole_shares_partitions(start: Start, peers: Peers, scheduler: Client) -> None:
    await scheduler.register()
    second = await start(scheduler_single_replica=True)
    services = (scheduler.service, second.service)
    await until(lambda: all(len(each._ownership.epochs) == PARTITIONS // 2 for each in services), "they share")
    assert (await scheduler.run()).status == cycle_pb2.CYCLE_STATUS_COMPLETED
    assert (await second.run()).status == cycle_pb2.CYCLE_STATUS_COMPLETED
    assert (await second.flow()).status == flow_pb2.FLOW_STATUS_REGISTERED


async def test_partitions_are_reshared_at_once_when_a_replica_comes_or_leaves(start: Start) -> None:
    """A replica that is not told would check only after a third of the lease."""
    first = await start(scheduler_lease_seconds=600.0)
    await until(lambda: len(first.service._ownership.epochs) == PARTITIONS, "the first owns all")
    second = await start(scheduler_lease_seconds=600.0)
    services = (first.service, second.service)
    await until(lambda: all(len(each._ownership.epochs) == PARTITIONS // 2 for each in services), "they share")
    await first.server.stop()
    await until(lambda: len(second.service._ownership.epochs) == PARTITIONS, "the second owns all")
