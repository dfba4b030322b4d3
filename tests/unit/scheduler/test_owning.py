"""Owning partitions: gains, losses and doubts."""

from tradewind.scheduler.stores.memory import MemoryStores
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.server.clock import ManualClock


def owner(stores: MemoryStores, wanted: int = 4) -> OwnPartitions:
    return OwnPartitions(stores.partitions, range(wanted))


async def test_what_nobody_holds_is_taken_and_renewed() -> None:
    clock = ManualClock()
    own = owner(MemoryStores(clock, lease_ms=100))
    changes: list[int] = []
    own.on_change(lambda: changes.append(len(own.epochs)))
    await own.take()
    assert own.complete
    assert own.owns(3)
    before = own.epochs
    for _ in range(5):
        clock.advance(99)
        await own.renew()
    assert own.epochs == before
    assert changes == [4]


async def test_what_lapsed_is_lost_and_taken_again_under_a_higher_epoch() -> None:
    clock = ManualClock()
    own = owner(MemoryStores(clock, lease_ms=100))
    await own.take()
    before = own.epochs
    clock.advance(100)
    await own.renew()
    assert not own.epochs
    await own.take()
    assert all(own.epochs[partition] > before[partition] for partition in before)


async def test_what_another_holds_is_taken_only_by_force() -> None:
    clock = ManualClock()
    stores = MemoryStores(clock)
    first = owner(stores)
    await first.take()
    second = owner(stores)
    await second.take()
    assert not second.epochs
    await second.take(force=True)
    assert second.complete
    await first.renew()
    assert not first.epochs


async def test_what_was_called_lost_by_mistake_comes_back_at_once() -> None:
    stores = MemoryStores(ManualClock())
    own = owner(stores)
    await own.take()
    own.lose([1, 2, 99], "somebody said so")
    assert not own.owns(1)
    await own.take()
    assert own.complete


async def test_what_is_released_is_there_for_the_next() -> None:
    stores = MemoryStores(ManualClock())
    first, second = owner(stores), owner(stores)
    await first.take()
    await first.release()
    await second.take()
    assert second.complete
    assert not first.epochs


async def test_epochs_in_use_do_not_change_under_the_hand() -> None:
    own = owner(MemoryStores(ManualClock()))
    await own.take()
    epochs = own.epochs
    own.lose([0], "gone")
    assert 0 in epochs
