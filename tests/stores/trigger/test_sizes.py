"""How much a store returns at a time: about a MiB, whatever the bytes consist of."""

from tests.stores.trigger.bench import PARTITION, Bench
from tradewind.server.schedules.event_filter import EventFilter
from tradewind.server.schedules.grids import TimesGrid
from tradewind.trigger.domain.claim import SHARED
from tradewind.trigger.domain.event import Event, Outcome
from tradewind.trigger.domain.policy import BATCH_BYTES
from tradewind.trigger.domain.schedule import OnEvent, Schedule
from tradewind.trigger.domain.trigger import TriggerDraft
from tradewind.trigger.ports.queues import FiringOrder

KIB = 1024


async def test_schedules_count_towards_the_size_of_pages_and_claims(bench: Bench) -> None:
    times = Schedule(TimesGrid(tuple(bench.now + n for n in range(1000))))
    for number in range(80):
        await bench.save(f"t{number:02}", times)

    page = await bench.scheduled()
    assert BATCH_BYTES <= page.size < BATCH_BYTES + 16 * KIB
    rest = await bench.scheduled(after=page.end)
    assert (page.more, rest.more, len(page.triggers) + len(rest.triggers)) == (True, False, 80)
    await bench.subscribe()
    assert [len(await bench.claim()) for _ in range(3)] == [len(page.triggers), len(rest.triggers), 0]


async def test_size_of_a_firing_includes_its_trigger(bench: Bench) -> None:
    queue = bench.store.of_queue("q")
    listens = Schedule(OnEvent("tick", EventFilter("")))
    for id in ("a", "b"):
        await queue.save(PARTITION, TriggerDraft(id, "q", listens, '"' + "é" * 250 * KIB + '"'))
        order = [FiringOrder(PARTITION, "q", id)]
        for event in ("e1", "e2"):
            assert await bench.queues.fire(order, Event(event, "tick")) == [Outcome.FIRED]

    bench.clock.advance(1)
    bench.store = queue
    assert [len(await bench.claim(epoch=SHARED)) for _ in range(3)] == [3, 1, 0]
