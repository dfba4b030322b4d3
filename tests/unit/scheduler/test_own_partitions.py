"""Owning partitions: gains, losses and doubts."""

from structlog.testing import capture_logs

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
    return [OwnPartitions(each.partitions, each.wakes) for each in stores]


async def take_turns(*replicas: OwnPartitions) -> None:
    """Do what each replica does at its turn, twice, so that partitions given up by one are taken by another."""
    for _ in range(2):
        for ownership in replicas:
            await ownership.rebalance()
            await ownership.acquire()


async def test_free_partitions_are_acquired_and_kept() -> None:
    clock = ManualClock()
    (ownership,) = replicas(clock, "first")
    changes: list[int] = []
    ownership.on_change(lambda: changes.append(len(ownership.epochs)))
    await ownership.rebalance()
    await ownership.acquire()
    assert ownership.complete
    assert ownership.owns(3)
    before = ownership.epochs
    for _ in range(5):
        clock.advance(99)
        await ownership.rebalance()
    assert ownership.epochs == before
    assert changes == [PARTITIONS]


async def test_lapsed_partitions_are_reacquired_under_a_higher_epoch() -> None:
    clock = ManualClock()
    (ownership,) = replicas(clock, "first")
    await take_turns(ownership)
    before = ownership.epochs
    clock.advance(100)
    await ownership.rebalance()
    assert not ownership.epochs
    await ownership.acquire()
    assert all(ownership.epochs[partition] > before[partition] for partition in before)


async def test_replicas_keep_their_shares_when_the_leases_of_all_have_lapsed() -> None:
    """The store was away: each remembers what it has begun, and the store may have lost that."""
    clock = ManualClock()
    first, second = replicas(clock, "first", "second")
    await take_turns(first, second)
    before = [set(first.epochs), set(second.epochs)]
    clock.advance(500)
    await first.rebalance()
    await first.acquire()
    clock.advance(99)
    await take_turns(first, second)
    assert [set(first.epochs), set(second.epochs)] == before
    clock.advance(500)
    await take_turns(first)
    clock.advance(99)
    await take_turns(first)
    assert set(first.epochs) == before[0]
    clock.advance(1)
    await take_turns(first)
    assert first.complete
    assert len(first.epochs) == PARTITIONS, "the second one did not come back"


async def test_only_a_sole_replica_takes_owned_partitions() -> None:
    first, second = replicas(ManualClock(), "first", "second")
    await take_turns(first)
    await second.rebalance()
    await second.acquire()
    assert not second.epochs
    await second.rebalance(alone=True)
    await second.acquire()
    assert second.complete
    await first.rebalance()
    assert not first.epochs


async def test_partitions_reported_lost_by_mistake_are_reacquired_at_once() -> None:
    (ownership,) = replicas(ManualClock(), "first")
    await take_turns(ownership)
    ownership.lose([1, 2, 99], "somebody said so")
    assert not ownership.owns(1)
    await ownership.acquire()
    assert ownership.complete


async def test_released_partitions_can_be_acquired() -> None:
    first, second = replicas(ManualClock(), "first", "second")
    await take_turns(first)
    await first.release()
    await take_turns(second)
    assert second.complete
    assert len(second.epochs) == PARTITIONS
    assert not first.epochs


async def test_losing_a_partition_leaves_earlier_epochs_unchanged() -> None:
    (ownership,) = replicas(ManualClock(), "first")
    await take_turns(ownership)
    epochs = ownership.epochs
    ownership.lose([0], "gone")
    assert 0 in epochs


async def test_partition_that_is_not_owned_is_lost_without_a_word() -> None:
    (ownership,) = replicas(ManualClock(), "first")
    await take_turns(ownership)
    changes: list[int] = []
    ownership.on_change(lambda: changes.append(len(ownership.epochs)))
    with capture_logs() as logged:
        ownership.lose([0], "gone")
        ownership.lose([0], "gone")
    assert changes == [PARTITIONS - 1]
    assert [each["event"] for each in logged] == ["partitions_lost"]


async def test_replicas_that_come_and_go_share_partitions_evenly() -> None:
    clock = ManualClock()
    first, second, third = replicas(clock, "first", "second", "third")
    await take_turns(first)
    assert len(first.epochs) == PARTITIONS
    for present in ([first, second], [first, second, third]):
        await take_turns(*present)
        owned = [partition for ownership in present for partition in ownership.epochs]
        assert sorted(owned) == list(range(PARTITIONS))
        assert (
            max(len(ownership.epochs) for ownership in present) - min(len(ownership.epochs) for ownership in present)
            <= 1
        )
    await second.release()
    await take_turns(first, third)
    assert (len(first.epochs), len(third.epochs)) == (8, 8)


async def test_partition_whose_release_the_store_has_lost_is_acquired_after_a_lease() -> None:
    clock = ManualClock()
    data = Data(clock)
    stores = [MemoryStores(clock, replica=each, lease_ms=100, data=data) for each in ("first", "second")]
    first, second = (OwnPartitions(each.partitions, each.wakes) for each in stores)
    await take_turns(first)
    owners = dict(data.owners)
    await second.rebalance()
    await first.rebalance()
    data.owners.update(owners)
    for _ in range(4):
        await take_turns(second, first)
        assert not second.epochs, "the store says that first owns them, and first is present"
        clock.advance(33)
    await take_turns(second, first)
    assert (len(first.epochs), len(second.epochs)) == (8, 8)


async def test_share_of_a_dead_replica_is_acquired_when_its_lease_lapses() -> None:
    clock = ManualClock()
    first, dead = replicas(clock, "first", "dead")
    await take_turns(first, dead)
    clock.advance(60)
    await take_turns(first)
    assert len(first.epochs) == 8
    clock.advance(60)
    await take_turns(first)
    assert first.complete
    assert len(first.epochs) == PARTITIONS
    await dead.rebalance()
    assert not dead.epochs


async def test_replicas_notify_others_only_when_they_join_give_up_or_leave() -> None:
    clock, wake_ups = ManualClock(), list[WakeUp]()
    data = Data(clock)
    first, second = (
        OwnPartitions(stores.partitions, stores.wakes)
        for each in ("first", "second")
        for stores in [MemoryStores(clock, replica=each, data=data)]
    )
    await MemoryStores(clock, data=data).wakes.listen(wake_ups.append, lambda: None)
    shares = WakeUp(Work.SHARES, EVERY, 0)
    for ownership in (first, second, first):
        await ownership.rebalance()
        await ownership.acquire()
        assert wake_ups == [shares]
        wake_ups.clear()
    await take_turns(first, second)
    assert not wake_ups
    assert len(second.epochs) == PARTITIONS // 2
    await second.release()
    assert wake_ups == [shares]
