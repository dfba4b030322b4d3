"""Which workers are connected to any replica, and which types they offer."""

import pytest

from tests.servers import RedisServer
from tradewind.node_task_manager.ports.connected import ConnectedWorkers, ConnectionChanges, LastOffer
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.node_task_manager.stores.memory.connected import MemoryConnectedWorkers
from tradewind.node_task_manager.stores.redis_connected import RedisConnectedWorkers
from tradewind.server.clock import ManualClock

KEEP = 15_000


@pytest.fixture
def connected(store: RedisServer | None, clock: ManualClock) -> ConnectedWorkers:
    """No connected workers."""
    if store is None:
        return MemoryConnectedWorkers(clock)
    return RedisConnectedWorkers(store.connect("node_task_manager"), Keys("trading_flow", 0), clock)


def arrival(worker_id: str, *node_types: str, since: int = 7, whole: bool = True) -> ConnectionChanges:
    return ConnectionChanges({worker_id: since}, dict.fromkeys(node_types), whole)


def departure(worker_id: str, *node_types: str, until: int = 9) -> ConnectionChanges:
    return ConnectionChanges({worker_id: 0}, dict.fromkeys(node_types, LastOffer(worker_id, until)))


async def test_no_node_type_is_offered_at_first(connected: ConnectedWorkers) -> None:
    assert await connected.unoffered(["a", "b"]) == {"a": LastOffer(), "b": LastOffer()}
    assert await connected.unoffered([]) == {}
    assert await connected.since(["w"]) == {}
    assert await connected.since([]) == {}


async def test_reports_of_all_replicas_are_combined(connected: ConnectedWorkers) -> None:
    assert await connected.record("r1", KEEP, arrival("w1", "a", "b", since=7))
    assert await connected.record("r2", KEEP, arrival("w2", "b", "c", since=8))
    assert await connected.unoffered(["a", "b", "c", "d"]) == {"d": LastOffer()}
    assert await connected.since(["w2", "w1", "w3"]) == {"w1": 7, "w2": 8}


async def test_last_offer_is_reported_until_a_worker_offers_the_type_again(connected: ConnectedWorkers) -> None:
    await connected.record("r1", KEEP, arrival("w1", "a"))
    assert await connected.record("r1", KEEP, departure("w1", "a", until=9))
    assert await connected.unoffered(["a"]) == {"a": LastOffer("w1", 9)}
    assert await connected.since(["w1"]) == {}
    assert await connected.record("r1", KEEP, arrival("w2", "a", whole=False))
    assert await connected.unoffered(["a"]) == {}
    # The earlier last worker is forgotten: should w2 go without notice, no worker is named.
    assert await connected.record("r1", KEEP, ConnectionChanges({}, {}, whole=True))
    assert await connected.unoffered(["a"]) == {"a": LastOffer()}


async def test_type_stays_offered_while_another_replica_has_a_worker(
    connected: ConnectedWorkers,
) -> None:
    await connected.record("r1", KEEP, arrival("w1", "a"))
    await connected.record("r2", KEEP, arrival("w2", "a"))
    await connected.record("r1", KEEP, departure("w1", "a", until=9))
    assert await connected.unoffered(["a"]) == {}
    await connected.record("r2", KEEP, departure("w2", "a", until=10))
    assert await connected.unoffered(["a"]) == {"a": LastOffer("w2", 10)}


async def test_report_of_a_silent_replica_lapses(connected: ConnectedWorkers, clock: ManualClock) -> None:
    await connected.record("r1", KEEP, arrival("w1", "a"))
    await connected.record("r2", KEEP, arrival("w2", "b"))
    clock.advance(KEEP - 1)
    assert await connected.record("r1", KEEP, ConnectionChanges({}, {}))
    clock.advance(1)
    assert await connected.unoffered(["a", "b"]) == {"b": LastOffer()}
    assert await connected.since(["w1", "w2"]) == {"w1": 7}
    # The replica has to report all its workers again; a part does not do.
    assert not await connected.record("r2", KEEP, arrival("w3", "c", whole=False))
    assert await connected.since(["w3"]) == {}
    assert await connected.record("r2", KEEP, arrival("w2", "b"))
    assert await connected.unoffered(["a", "b"]) == {}


async def test_leaving_replica_withdraws_its_report(connected: ConnectedWorkers) -> None:
    await connected.record("r1", KEEP, arrival("w1", "a"))
    assert await connected.record("r1", 0, departure("w1", "a", until=9))
    assert await connected.unoffered(["a"]) == {"a": LastOffer("w1", 9)}
    assert not await connected.record("r1", KEEP, ConnectionChanges({}, {}))
    await connected.record("r1", KEEP, arrival("w1", "a"))
    assert await connected.record("r1", 0, ConnectionChanges({}, {}))
    assert await connected.since(["w1"]) == {}


async def test_whole_report_replaces_the_earlier_ones(connected: ConnectedWorkers) -> None:
    await connected.record("r1", KEEP, arrival("w1", "a"))
    await connected.record("r1", KEEP, arrival("w2", "b"))
    assert await connected.since(["w1", "w2"]) == {"w2": 7}
    assert list(await connected.unoffered(["a", "b"])) == ["a"]
