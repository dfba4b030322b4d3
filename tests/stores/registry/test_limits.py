"""Bounds of records, answers, and what one script reads."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.servers import RedisServer
from tests.stores.registry.bench import LIFETIMES, Bench, a_type, a_worker, redis_bench
from tradewind.registry.domain.limits import Limits
from tradewind.registry.domain.node_type import NodeType
from tradewind.registry.ports import Page, Refusal
from tradewind.server.clock import ManualClock

FORGOTTEN_AFTER = LIFETIMES.time_to_live + LIFETIMES.retention


@pytest.fixture
def limits() -> Limits:
    return Limits(workers=2, node_types=3, answer_bytes=4_000)


async def test_workers_beyond_the_limit_are_refused(bench: Bench) -> None:
    await bench.register(a_worker("a"))
    bench.clock.advance(1)
    await bench.register(a_worker("b"))
    assert await bench.workers.register(a_worker("c"), []) is Refusal.TOO_MANY_WORKERS
    assert await bench.workers.heartbeat(a_worker("c")) is Refusal.TOO_MANY_WORKERS
    await bench.register(a_worker("b", incarnation="b-2"))
    await bench.beat(a_worker("a"))
    bench.clock.advance(FORGOTTEN_AFTER - 1)
    await bench.beat(a_worker("a"))
    assert await bench.workers.register(a_worker("c"), []) is Refusal.TOO_MANY_WORKERS
    bench.clock.advance(1)
    await bench.register(a_worker("c"))


async def test_node_types_beyond_the_limit_are_refused(bench: Bench) -> None:
    await bench.register(a_worker("a", "one", "two", "three"))
    refused = await bench.workers.register(a_worker("b", "one", "four"), [a_type("one", "new"), a_type("four")])
    assert refused is Refusal.TOO_MANY_NODE_TYPES
    assert await bench.ids() == ["a"]
    (one,) = await bench.declared("one")
    assert one.node_type.description == ""
    await bench.register(a_worker("b", "one", "two"), a_type("one", "new"))
    bench.clock.advance(FORGOTTEN_AFTER)
    await bench.register(a_worker("b", "four", "five"))


async def test_node_type_that_has_lapsed_counts_as_a_new_one(bench: Bench) -> None:
    await bench.register(a_worker("a", "one"))
    bench.clock.advance(1)
    await bench.register(a_worker("b", "two", "three"))
    bench.clock.advance(FORGOTTEN_AFTER - 1)
    await bench.beat(a_worker("b", "two", "three"))
    await bench.register(a_worker("a", "four"))
    refused = await bench.workers.register(a_worker("a", "four", "one"), [a_type("four"), a_type("one")])
    assert refused is Refusal.TOO_MANY_NODE_TYPES


async def test_named_node_types_too_large_together_are_not_returned(bench: Bench) -> None:
    names = ("one", "two", "three")
    await bench.register(a_worker("w", *names), *(NodeType(name, "x" * 1500) for name in names))
    assert await bench.node_types.find(names) is None
    assert [record.node_type.name for record in await bench.declared("one", "two")] == ["one", "two"]


SMALL = Limits(records_per_script=3, answer_bytes=4_000, offering=2)


@pytest.fixture
def small(redis_server: RedisServer) -> Bench:
    """Redis with small limits: it reads in bounded steps and cuts answers by bytes, which memory does not do."""
    return redis_bench(redis_server, ManualClock(), SMALL)


async def test_page_is_filled_in_several_small_reads(small: Bench) -> None:
    for number in range(10):
        await small.register(a_worker(f"w{number}"))
    small.clock.advance(LIFETIMES.time_to_live)
    for number in (3, 8, 9):
        await small.beat(a_worker(f"w{number}"))
    page = await small.workers.list("", 2)
    assert [record.worker.worker_id for record in page.records] == ["w3", "w8"]
    assert (await small.workers.list(page.next_after, 2)).next_after == ""
    assert len(await small.ids(include_offline=True)) == 10


async def sizes(listing: Callable[[str, int], Awaitable[Page[Any]]]) -> list[int]:
    """Read a list to its end and return how many records each page had."""
    pages = [await listing("", 100)]
    while pages[-1].next_after:
        pages.append(await listing(pages[-1].next_after, 100))
    return [len(page.records) for page in pages]


@pytest.mark.parametrize("text", ["x" * 1500, "価" * 500])
async def test_pages_end_early_to_stay_small(small: Bench, text: str) -> None:
    names = [f"type{number}" for number in range(7)]
    await small.register(a_worker("w", *names), *(NodeType(name, text) for name in names))
    for number in range(7):
        labels = tuple((f"label{n}", text[: len(text) // 6]) for n in range(6))
        await small.register(a_worker(f"v{number}", labels=labels))
    assert await sizes(small.node_types.list) == [3, 3, 1]
    assert await sizes(small.workers.list) == [3, 3, 2]


async def test_named_node_types_are_read_in_small_steps(small: Bench) -> None:
    names = [f"type{number}" for number in range(10)]
    await small.register(a_worker("w", *names))
    assert [record.node_type.name for record in await small.declared(*names)] == names


async def test_worker_ids_of_a_node_type_are_limited(small: Bench) -> None:
    for number in range(4):
        await small.register(a_worker(f"w{number}", "average"))
    (record,) = await small.declared("average")
    assert record.worker_ids == ("w0", "w1")


async def test_fewer_worker_ids_of_a_node_type_can_be_asked_for(bench: Bench) -> None:
    for worker_id in ("a", "b"):
        await bench.register(a_worker(worker_id, "average", "report"))
    records = await bench.node_types.find(["average", "report"], offering=1)
    assert records is not None
    assert [(record.node_type.name, len(record.worker_ids)) for record in records] == [("average", 1), ("report", 1)]


async def test_sweep_removes_entries_in_small_steps(small: Bench) -> None:
    for number in range(5):
        await small.register(a_worker(f"w{number}", f"type{number}"))
    small.clock.advance(FORGOTTEN_AFTER)
    swept = []
    while taken := await small.sweeper.sweep():
        swept.append(taken)
    assert swept == [2, 2, 2, 2, 2]
