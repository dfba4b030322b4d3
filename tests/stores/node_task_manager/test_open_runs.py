"""Asking the scheduler about runs that stay open: the contract of `clean`, for every store."""

from tests.servers import RedisServer
from tests.stores.node_task_manager.cleaning import clean
from tests.stores.node_task_manager.shards import LIMITS, Bench, plan_of, redis_shard
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.ports.events import ComponentEvent, OpenEvent
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.clock import ManualClock

PARTITION = 3
HOUR = LIMITS.confirm_ms
BASE = Keys("trading_flow", 0).base


async def take_questions(bench: Bench) -> list[tuple[str, str, int]]:
    """Clean, acknowledge all events, and return the components asked about: run, id, and when it began."""
    await clean(bench)
    events = await bench.shard.read({PARTITION: "0"}, 10_000)
    if events:
        await bench.shard.acknowledge({PARTITION: events[-1].event_id})
    asked = [event for event in events if isinstance(event, OpenEvent)]
    assert all((event.run_id, event.user_id, event.at) == ("r0", "default", bench.clock()) for event in asked)
    return [(event.run, event.component, event.begun_at) for event in asked]


async def test_scheduler_is_asked_every_hour_about_open_components(bench: Bench) -> None:
    begun, plans = bench.clock(), [plan_of(node) for node in "abc"]
    for plan in plans:
        await bench.shard.save(plan)
    parts = tuple((str(at), plan.digest) for at, plan in enumerate(plans))
    run = RunSubmission(RunName("flow", 7, 1), "r0", "default", parts, PARTITION, begun_ms=begun, withheld=("2",))
    await bench.shard.submit([run])
    bench.clock.advance(HOUR - 1)
    assert await take_questions(bench) == []
    bench.clock.advance(1)
    assert await take_questions(bench) == [("flow:7:1", component_id, begun) for component_id in ("0", "1", "2")]
    assert await take_questions(bench) == []
    bench.clock.advance(HOUR)
    for taken in await bench.take():
        await bench.complete(taken, out="1")
    assert await take_questions(bench) == [("flow:7:1", "2", begun)]


async def test_scheduler_is_not_asked_about_ended_runs(bench: Bench) -> None:
    await bench.submit(plan_of("a"))
    await bench.complete((await bench.take())[0], out="1")
    bench.clock.advance(HOUR)
    assert await take_questions(bench) == []


async def test_run_that_ends_after_a_question_is_cleaned_like_any_other(bench: Bench) -> None:
    await bench.submit(plan_of("a"))
    bench.clock.advance(HOUR)
    assert len(await take_questions(bench)) == 1
    for cycle in range(1, 3):
        await bench.submit(plan_of("a"), cycle=cycle)
    for taken in await bench.take():
        await bench.complete(taken, out="1")
    assert await take_questions(bench) == []
    bench.clock.advance(LIMITS.settle_ms)
    assert await take_questions(bench) == []
    bench.clock.advance(HOUR)
    assert await take_questions(bench) == []


async def test_recall_asks_about_all_open_runs_now(bench: Bench) -> None:
    begun = bench.clock()
    await bench.submit(plan_of("a"))
    await bench.submit(plan_of("a"), cycle=1)
    await bench.complete((await bench.take(credits=1))[0], out="1")
    bench.clock.advance(5)
    await bench.shard.clean("c", None, 0)
    assert await take_questions(bench) == [("flow:1:0", "0", begun)]
    bench.clock.advance(HOUR - 1)
    assert await take_questions(bench) == []
    bench.clock.advance(1)
    assert len(await take_questions(bench)) == 1


async def test_no_questions_pile_up_while_no_scheduler_takes_events(bench: Bench) -> None:
    await bench.submit(plan_of("a"))
    for _ in range(5):
        bench.clock.advance(HOUR)
        await clean(bench)
    events = await bench.shard.read({PARTITION: "0"}, 10_000)
    assert len(events) == 1
    await bench.shard.acknowledge({PARTITION: events[0].event_id})
    bench.clock.advance(HOUR)
    assert len(await take_questions(bench)) == 1


async def test_end_of_a_component_follows_questions_in_order(bench: Bench) -> None:
    """A subscriber is told of the event before each, so that it notices when it has missed one."""
    await bench.submit(plan_of("a"))
    bench.clock.advance(HOUR)
    await clean(bench)
    (asked,) = await bench.shard.read({PARTITION: "0"}, 10)
    (taken,) = await bench.take()
    effects = await bench.shard.claim()
    assert not effects.events
    await bench.complete(taken, out="1")
    (end,) = await bench.shard.read({PARTITION: asked.event_id}, 10)
    assert isinstance(end, ComponentEvent)


async def test_recall_goes_on_in_steps_past_what_is_no_open_run(redis_server: RedisServer) -> None:
    clock = ManualClock()
    bench = Bench(redis_shard(redis_server, clock), clock)
    admin = redis_server.connect()
    later = clock() + 2 * LIMITS.settle_ms
    flows = [word for at in range(150) for word in (later, f"flow:f{at:03}")]
    await admin.execute_command("ZADD", f"{BASE}to_clean", *flows)
    for cycle in range(250):
        await bench.submit(plan_of("a"), cycle=cycle)
    clock.advance(1)
    steps = [await bench.shard.clean("c", None, 0)]
    while steps[-1].more:
        steps.append(await bench.shard.clean("c", None, steps[-1].recall))
    assert [step.recall for step in steps if step.recall is not None][-1] <= 150
    events = await bench.shard.read({PARTITION: "0"}, 10_000)
    assert sorted(event.run for event in events) == sorted(f"flow:{cycle}:0" for cycle in range(250))
    assert await admin.execute_command("ZCOUNT", f"{BASE}to_clean", later, later) == 150
