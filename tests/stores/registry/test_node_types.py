"""Every sentence of the catalogue's contract, for every store."""

from tests.stores.registry.bench import LIFETIMES, SECOND, Bench, a_type, a_worker
from tradewind.registry.domain.node_type import NodeType
from tradewind.registry.ports import Page

OFFLINE_AFTER = LIFETIMES.time_to_live
FORGOTTEN_AFTER = LIFETIMES.time_to_live + LIFETIMES.retention


async def test_declaration_is_stored_unchanged(bench: Bench) -> None:
    declared = a_type("average", "Mean of the last prices, für alle")
    await bench.register(a_worker("w", "average"), declared)
    (record,) = await bench.declared("average")
    assert record.node_type == declared
    assert record.declared_at == bench.clock.now_ms()
    assert record.worker_ids == ("w",)
    bare = NodeType("bare")
    await bench.register(a_worker("w", "bare"), bare)
    assert (await bench.declared("bare"))[0].node_type == bare


async def test_latest_declaration_wins(bench: Bench) -> None:
    await bench.register(a_worker("w", "average"), a_type("average", "the first"))
    bench.clock.advance(SECOND)
    await bench.register(a_worker("v", "average"), a_type("average", "the second"))
    (record,) = await bench.declared("average")
    assert record.node_type.description == "the second"
    assert record.declared_at == bench.clock.now_ms()
    assert record.worker_ids == ("v", "w")


async def test_node_type_names_its_live_workers_including_draining_ones(bench: Bench) -> None:
    for worker_id in ("a", "b", "c", "d", "e"):
        await bench.register(a_worker(worker_id, "average"))
    await bench.workers.deregister("b")
    await bench.workers.drain("c")
    bench.clock.advance(OFFLINE_AFTER)
    for worker_id in ("c", "e"):
        await bench.beat(a_worker(worker_id, "average"))
    await bench.beat(a_worker("a", "report"))
    (record,) = await bench.declared("average")
    assert record.worker_ids == ("c", "e")


async def test_declaration_lasts_while_offered_and_a_day_longer(bench: Bench) -> None:
    worker = a_worker("w", "average")
    await bench.register(worker)
    for _ in range(3):
        bench.clock.advance(FORGOTTEN_AFTER - SECOND)
        await bench.beat(worker)
    assert await bench.types() == ["average"]
    bench.clock.advance(FORGOTTEN_AFTER - 1)
    (record,) = await bench.declared("average")
    assert record.worker_ids == ()
    bench.clock.advance(1)
    assert await bench.declared("average") == []
    assert await bench.types() == []


async def test_declaration_outlives_deregistration_of_its_last_worker(bench: Bench) -> None:
    await bench.register(a_worker("w", "average"))
    await bench.workers.deregister("w")
    bench.clock.advance(LIFETIMES.retention)
    assert await bench.types() == ["average"]
    bench.clock.advance(OFFLINE_AFTER)
    assert await bench.types() == []


async def test_node_types_are_listed_by_name_in_pages(bench: Bench) -> None:
    await bench.register(a_worker("w", "d", "a", "c", "b"))
    first = await bench.node_types.list("", 2)
    assert [record.node_type.name for record in first.records] == ["a", "b"]
    second = await bench.node_types.list(first.next_after, 2)
    assert [record.node_type.name for record in second.records] == ["c", "d"]
    assert second.next_after == ""
    assert await bench.node_types.list("d", 2) == Page()


async def test_named_node_types_are_returned_in_requested_order(bench: Bench) -> None:
    await bench.register(a_worker("w", "a", "b", "c"))
    found = await bench.declared("c", "unknown", "a")
    assert [record.node_type.name for record in found] == ["c", "a"]
    assert await bench.declared() == []
