"""Owning partitions: gains, losses and doubts."""

from tradewind.scheduler.ports.waking import EVERY, WakeUp, Work
from tradewind.scheduler.stores.memory import MemoryStores
from tradewind.scheduler.stores.memory.data import Data
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import PARTITIONS


def replicas(clock: ManualClock, *names: str) -> list[OwnPartitions]:
    """Return several replicas over the same data; a lease lasts 100 ms."""
    data = Data(clock)
    stores = [MemoryStores(clock, replica=each, lease_ms=100, data=data) for each in names]
    return [OwnPartitions(each.partitions, each.partitions.replica, each.wakes) for each in stores]


async def beat(*everybody: OwnPartitions) -> None:
    """Do what each replica does at its turn, twice, so that partitions given up by one are taken by another."""
    for _ in range(2):
        for own in everybody:
            await own.rebalance()
            await own.acquire()


async def test_free_partitions_are_acquired_and_kept() -> None:
    clock = ManualClock()
    (own,) = replicas(clock, "first")
    changes: list[int] = []
    own.on_change(lambda: changes.append(len(own.epochs)))
    await own.rebalance()
    await own.acquire()
    assert own.complete
    assert own.owns(3)
    before = own.epochs
    for _ in range(5):
        clock.advance(99)
        await own.rebalance()
    assert own.epochs == before
    assert changes == [PARTITIONS]


async def test_lapsed_partitions_are_reacquired_under_a_higher_epoch() -> None:
    clock = ManualClock()
    (own,) = replicas(clock, "first")
    await beat(own)
    before = own.epochs
    clock.advance(100)
    await own.rebalance()
    assert not own.epochs
    await own.acquire()
    assert all(own.epochs[partition] > before[partition] for partition in before)


async def test_only_a_sole_replica_takes_owned_partitions() -> None:
    first, second = replicas(ManualClock(), "first", "second")
    await beat(first)
    await second.rebalance()
    await second.acquire()
    assert not second.epochs
    await second.rebalance(alone=True)
    await second.acquire()
    assert second.complete
    await first.rebalance()
    assert not first.epochs


async def test_partitions_reported_lost_by_mistake_are_reacquired_at_once() -> None:
    (own,) = replicas(ManualClock(), "first")
    await beat(own)
    own.lose([1, 2, 99], "somebody said so")
    assert not own.owns(1)
    await own.acquire()
    assert own.complete


async def test_released_partitions_can_be_acquired() -> None:
    first, second = replicas(ManualClock(), "first", "second")
    await beat(first)
    await first.release()
    await beat(second)
    assert second.complete
    assert len(second.epochs) == PARTITIONS
    assert not first.epochs


async def test_losing_a_partition_leaves_earlier_epochs_unchanged() -> None:
    (own,) = replicas(ManualClock(), "first")
    await beat(own)
    epochs = own.epochs
    own.lose([0], "gone")
    assert 0 in epochs


async def test_replicas_that_come_and_go_share_partitions_evenly() -> None:
    clock = ManualClock()
    first, second, third = replicas(clock, "first", "second", "third")
    await beat(first)
    assert len(first.epochs) == PARTITIONS
    for there in ([first, second], [first, second, third]):
        await beat(*there)
        owned = [partition for own in there for partition in own.epochs]
        assert sorted(owned) == list(range(PARTITIONS))
        assert max(len(own.epochs) for own in there) - min(len(own.epochs) for own in there) <= 1
    await second.release()
    await beat(first, third)
    assert (len(first.epochs), len(third.epochs)) == (8, 8)


async def test_share_of_a_dead_replica_is_acquired_when_its_lease_lapses() -> None:
    clock = ManualClock()
    first, dead = replicas(clock, "first", "dead")
    await beat(first, dead)
    clock.advance(60)
    await beat(first)
    assert len(first.epochs) == 8
    clock.advance(60)
    await beat(first)
    assert first.complete
    assert len(first.epochs) == PARTITIONS
    await dead.rebalance()
    assert not dead.epochs


async def test_replicas_notify_others_only_when_they_join_give_up_or_leave() -> None:
    clock, wake_ups = ManualClock(), list[WakeUp]()
    data = Data(clock)
    first, second = (
        OwnPartitions(stores.partitions, each, stores.wakes)
        for each in ("first", "second")
        for stores in [MemoryStores(clock, replica=each, data=data)]
    )
    await MemoryStores(clock, data=data).wakes.listen(wake_ups.append, lambda: None)
    shares = WakeUp(Work.SHARES, EVERY, 0)
    for own in (first, second, first):
        await own.rebalance()
        await own.acquire()
        assert wake_ups == [shares]
        wake_ups.clear()
    await beat(first, second)
    assert not wake_ups
    assert len(second.epochs) == PARTITIONS // 2
    await second.release()
    assert wake_ups == [shares]
