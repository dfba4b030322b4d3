"""Owning partitions: memory and Redis answer alike, and nobody takes partitions from replicas that are present."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from tests.servers import RedisServer
from tests.stores.machines import StoreMachine
from tradewind.scheduler.ports.owning import NO_PRESENCE, Partitions, Presence
from tradewind.scheduler.stores.keys import ACL, Keys
from tradewind.scheduler.stores.memory.data import Data
from tradewind.scheduler.stores.memory.partitions import MemoryPartitions
from tradewind.scheduler.stores.redis.partitions import RedisPartitions
from tradewind.scheduler.stores.redis.scripts import Scripted
from tradewind.server.clock import ManualClock

NAMES = ("first", "second", "third")
LEASE_MS = 100_000

replicas = st.sampled_from(NAMES)
partitions = st.sampled_from([0, 5])


class Twins(StoreMachine):
    """Three replicas over memory, and the same three over one Redis."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server)
        self.presence = dict.fromkeys(NAMES, NO_PRESENCE)
        self.held: dict[str, dict[int, int]] = {name: {} for name in NAMES}
        data = Data(self.clock)
        self.memory: dict[str, Partitions] = {name: MemoryPartitions(data, name, LEASE_MS) for name in NAMES}
        self.redis: dict[str, Partitions] = self.run(self.connected())

    async def connected(self) -> dict[str, Partitions]:
        scripted = Scripted(self.server.connect(ACL.name), Keys(), self.clock)
        return {name: RedisPartitions(scripted, name, LEASE_MS) for name in NAMES}

    @rule(name=replicas, alone=st.sampled_from([False, False, False, True]))
    def report_presence(self, name: str, alone: bool) -> None:
        expected: Presence = self.run(self.memory[name].report_presence(alone=alone))
        found: Presence = self.run(self.redis[name].report_presence(alone=alone))
        assert found._replace(replicas=tuple(sorted(found.replicas))) == expected
        self.presence[name] = found
        if found.lapsed:
            self.held[name] = {}

    @rule(name=replicas)
    def leave(self, name: str) -> None:
        self.run(self.memory[name].leave())
        self.run(self.redis[name].leave())

    @rule(name=replicas, partition=partitions)
    def acquire(self, name: str, partition: int) -> None:
        presence = self.presence[name]
        epoch = self.run(self.redis[name].acquire(partition, presence))
        assert epoch == self.run(self.memory[name].acquire(partition, presence))
        if epoch:
            for other in NAMES:
                before = self.held[other].pop(partition, 0)
                assert before < epoch
                assert not before or other == name or (other not in presence.replicas and before <= presence.at_ms)
            self.held[name][partition] = epoch

    @rule(name=replicas, older=st.sampled_from([0, 0, 1]))
    def release(self, name: str, older: int) -> None:
        held = {partition: epoch - older for partition, epoch in self.held[name].items()}
        self.run(self.memory[name].release(held))
        self.run(self.redis[name].release(held))
        if not older:
            self.held[name] = {}

    @rule(ms=st.sampled_from([1, LEASE_MS // 2, LEASE_MS - 1, LEASE_MS]))
    def advance(self, ms: int) -> None:
        self.clock.advance(ms)

    @invariant()
    def each_partition_has_at_most_one_owner(self) -> None:
        owned = [partition for held in self.held.values() for partition in held]
        assert len(owned) == len(set(owned))


def test_memory_and_redis_agree_on_owners(running_redis: RedisServer) -> None:
    run_machine(
        lambda: Twins(running_redis),  # type: ignore[arg-type]
        settings=settings(max_examples=25, stateful_step_count=40, deadline=None, derandomize=True),
    )


@pytest.mark.parametrize("elapsed_ms", [0, LEASE_MS])
async def test_outdated_presence_acquires_no_partition_of_a_newcomer(elapsed_ms: int) -> None:
    clock = ManualClock()
    data = Data(clock)
    first, second = (MemoryPartitions(data, name, LEASE_MS) for name in NAMES[:2])
    presence = await first.report_presence()
    clock.advance(elapsed_ms + 1)
    await second.report_presence()
    assert await second.acquire(3)
    assert not await first.acquire(3, presence)


async def test_partition_released_twice_can_be_acquired() -> None:
    data = Data(ManualClock())
    first, second = (MemoryPartitions(data, name, LEASE_MS) for name in NAMES[:2])
    held = {3: await first.acquire(3)}
    for _ in range(2):
        await first.release(held)
    assert await second.acquire(3)
