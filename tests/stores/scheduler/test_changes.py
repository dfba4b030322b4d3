"""Changes to runs are published to listeners."""

import pytest
from msgspec import structs

from tests.stores.scheduler.bench import Bench
from tests.waiting import until
from tradewind.scheduler.domain.chain_state import STATUS, ChainState
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.ports.changes import ChangeFeed, RunChange
from tradewind.scheduler.stores.keys import Keys
from tradewind.scheduler.stores.redis.changes import RedisChanges
from tradewind.server.partitions import partition_of
from tradewind.server.redis.subscriber import Subscriber


@pytest.fixture
def feed(bench: Bench, subscriber: Subscriber | None) -> ChangeFeed:
    """The feed of a replica that did not make the changes."""
    return bench.stores.changes if subscriber is None else RedisChanges(subscriber, Keys())


async def test_subscriber_receives_only_changes_of_its_partition(bench: Bench, feed: ChangeFeed) -> None:
    assert partition_of("f") != partition_of("g")
    await bench.register("f")
    await bench.register("g")
    received: list[RunChange] = []
    await feed.subscribe(partition_of("f"), received.extend, lambda: None)
    states: dict[tuple[int, int], ChainState] = {}

    async def both_arrived() -> bool:
        """Begin and end a cycle of each flow at once; tell whether both changes to one of them have arrived whole."""
        answers = await bench.stores.cycles.begin([bench.request("g"), bench.request("f")])
        begun = [answer.state for answer in answers if answer.state is not None]
        ended = [structs.replace(state, status=CycleStatus.COMPLETED) for state in begun]
        await bench.stores.states.update_many([RunUpdate(state, {STATUS}) for state in ended])
        for change in sorted(received, key=lambda change: (change.run, change.version)):
            before = states.get((change.run.cycle, change.version - 1))
            state = change.state_after(before)
            if state is not None:
                states[change.run.cycle, change.version] = state
        return any((cycle, 1) in states and (cycle, 2) in states for cycle, _ in states)

    await until(both_arrived, "both changes to one cycle have arrived")
    assert {change.run.flow_id for change in received} == {"f"}
    last = max(state.name.cycle for state in states.values() if state.version == 2)
    assert states[last, 2] == await bench.state(states[last, 2].name)


@pytest.mark.parametrize("flow_ids", [("f",), ("f", "g")])
async def test_runs_begin_and_end_without_subscribers(bench: Bench, flow_ids: tuple[str, ...]) -> None:
    for flow_id in flow_ids:
        await bench.register(flow_id)
    answers = await bench.stores.cycles.begin([bench.request(flow_id) for flow_id in flow_ids])
    begun = [answer.state for answer in answers if answer.state is not None]
    assert [state.name.flow_id for state in begun] == list(flow_ids)
    results = [await bench.end(state) for state in begun]
    for state, result in zip(begun, results, strict=True):
        assert (await bench.state(state.name)).end_ms == result.end_ms > 0
