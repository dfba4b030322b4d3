"""Events of tasks, and notifications, in every store."""

from typing import Any

import pytest
from msgspec import structs

from tests.no_writes import refusing_writes
from tests.servers import RedisServer
from tests.stores.node_task_manager.shards import Bench, plan_of
from tradewind.node_task_manager.domain.component import Release, RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.domain.notification import Fact, NotificationKind
from tradewind.node_task_manager.domain.plan import Plan, PlanNode, RunIf
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.domain.task_event import TaskEventKind
from tradewind.node_task_manager.ports.reading import Progress
from tradewind.node_task_manager.ports.work import Assignment, Outcome, OutcomeKind

TASK, USER = "task:a", "ann"
DAY_MS = 24 * 3600 * 1000


async def submit(bench: Bench, run: RunName, plan: Plan) -> list[Assignment]:
    """Submit an ad-hoc run, and claim its node tasks."""
    await bench.shard.save(plan)
    submission = RunSubmission(run, "r0", USER, (("0", plan.digest),), partition=-1, node_type="noop")
    await bench.shard.submit([submission])
    return await bench.take()


async def task(bench: Bench, **options: Any) -> Assignment:
    """Submit an ad-hoc task, and claim it."""
    (given,) = await submit(bench, RunName.of_task("a"), Plan("alone", (PlanNode("", "noop", **options),), ()))
    return given


async def fail(bench: Bench, *given: Assignment, message: str = "broke") -> None:
    error = TaskError("NODE_ERROR", message, "IOError", "line 1")
    outcomes = [Outcome(each.task_id, each.attempt, each.nonce, OutcomeKind.FAILED, error=error) for each in given]
    await bench.shard.complete(outcomes)


async def facts(bench: Bench, user: str = USER) -> list[Fact]:
    """Return a user's notifications, the oldest first."""
    listed, _ = await bench.shard.list_notifications(user, "", 1000)
    return [each.fact for each in reversed(listed)]


async def kinds(bench: Bench, after: str = "0-0") -> list[TaskEventKind]:
    return [event.kind for event in (await bench.shard.task_events(TASK, after, 1000)).entries]


async def test_an_ad_hoc_task_leaves_an_event_for_each_change_and_one_notification(bench: Bench) -> None:
    given = await task(bench)
    await bench.shard.record([Progress(TASK, given.nonce, 40, "so far")], [])
    assert await bench.complete(given, out="1") == ""
    assert await bench.complete(given, out="1") == "", "said twice, told once"
    events = (await bench.shard.task_events(TASK, "0-0", 1000)).entries
    told = [TaskEventKind.QUEUED, TaskEventKind.RUNNING, TaskEventKind.PROGRESS, TaskEventKind.COMPLETED]
    assert [event.kind for event in events] == told
    assert [(event.attempt, event.worker_id) for event in events] == [(0, ""), *[(1, "w1")] * 3]
    assert (events[2].progress, events[2].message) == (40, "so far")
    assert await kinds(bench, events[1].event_id) == told[2:]
    assert (await bench.shard.task_events(TASK, "0-0", 2)).entries == events[:2]
    assert await bench.shard.newest_task_event(TASK) == events[-1]
    assert await facts(bench) == [Fact(NotificationKind.TASK_COMPLETED, TASK, bench.clock(), "noop")]


async def test_progress_reports_of_one_call_make_one_event(bench: Bench) -> None:
    given = await task(bench)
    await bench.shard.record([Progress(TASK, given.nonce, at, f"at {at}") for at in (10, 30, 20)], [])
    newest = await bench.shard.newest_task_event(TASK)
    assert newest is not None
    assert (newest.progress, newest.message) == (30, "at 30")
    assert (await kinds(bench)).count(TaskEventKind.PROGRESS) == 1


async def test_newest_events_are_kept_and_readers_behind_them_see_a_gap(bench: Bench) -> None:
    given = await task(bench)
    (queued, _) = (await bench.shard.task_events(TASK, "0-0", 10)).entries
    positions = []
    for at in range(260):
        bench.clock.advance(1)
        await bench.shard.record([Progress(TASK, given.nonce, at * 100 // 260, "")], [])
        newest = await bench.shard.newest_task_event(TASK)
        assert newest is not None
        positions.append(newest.event_id)
    assert len((await bench.shard.task_events(TASK, "0-0", 1000)).entries) == 250
    for lost in ("0-0", queued.event_id, positions[9], "1-1"):
        behind = await bench.shard.task_events(TASK, lost, 1000)
        assert (behind.gap, behind.entries[0].event_id) == (True, positions[10])
    held = await bench.shard.task_events(TASK, positions[10], 1000)
    assert (held.gap, [event.event_id for event in held.entries]) == (False, positions[11:])


async def test_missing_stream_is_empty_and_a_position_in_it_is_a_gap(bench: Bench) -> None:
    for page in (await bench.shard.task_events(TASK, "0-0", 1), await bench.shard.notifications(USER, "0-0", 1)):
        assert (page.gap, page.entries) == (False, ())
    assert (await bench.shard.task_events(TASK, "5-1", 1)).gap
    assert await bench.shard.newest_task_event(TASK) is None
    assert await bench.shard.newest_notification(USER) == "0-0"
    assert await bench.shard.list_notifications(USER, "", 10) == ([], 0)
    await bench.shard.mark_read(USER, "")


@pytest.mark.parametrize("message", ["x" * 600, "ä" * 300, "x" + "ä" * 300, "x" + "€" * 200, "🙂" * 150])
async def test_long_errors_are_cut_between_characters(bench: Bench, message: str) -> None:
    await fail(bench, await task(bench), message=message)
    newest = await bench.shard.newest_task_event(TASK)
    assert newest is not None
    assert newest.error is not None
    assert (newest.error.type, newest.error.traceback) == ("IOError", "")
    (told,) = [fact.message for fact in await facts(bench)]
    for whole, brief in ((message, newest.error.message), (f"IOError: {message}", told)):
        assert whole.startswith(brief)
        assert 492 <= len(brief.encode()) <= 500


async def test_batch_notifies_once_of_its_end_and_once_of_its_dead_letters(bench: Bench) -> None:
    nodes = tuple(PlanNode(str(at), "noop", retry=RetryPolicy(2, initial_ms=1)) for at in range(50))
    given = await submit(bench, RunName.of_batch("b"), Plan("batch", nodes, ()))
    await fail(bench, *given)
    bench.clock.advance(10)
    await fail(bench, *await bench.take())
    letter, end = await facts(bench)
    assert (letter.kind, letter.subject.startswith("batch:b:")) == (NotificationKind.DEAD_LETTER, True)
    assert (end.kind, end.subject, end.total, end.failed) == (NotificationKind.BATCH_FINISHED, "batch:b", 50, 50)


async def test_failures_and_dead_letters_of_a_flow_notify_once_a_minute(bench: Bench) -> None:
    plan = plan_of("a", retry=RetryPolicy(2, initial_ms=1))
    for cycle in range(3):
        await bench.submit(plan, cycle=cycle, user_id=USER)
        for _ in range(2):
            bench.clock.advance(10)
            await fail(bench, *await bench.take())
        bench.clock.advance(0 if cycle == 0 else 60_000)
    told = sorted((fact.kind, fact.subject) for fact in await facts(bench))
    letters = [(NotificationKind.DEAD_LETTER, f"flow:{cycle}:0:a") for cycle in (0, 2)]
    assert told == [*((NotificationKind.CYCLE_FAILED, f"flow:{cycle}:0") for cycle in (0, 2)), *letters]


async def test_skipping_a_withheld_component_does_not_silence_a_later_run_of_the_same_name(bench: Bench) -> None:
    plan, name = plan_of("a"), RunName("flow", 0, 0)
    await bench.shard.save(plan)
    run = RunSubmission(name, "r0", USER, (("0", plan.digest),), 3, begun_ms=bench.clock())
    await bench.shard.submit([structs.replace(run, withheld=("0",))])
    await bench.shard.release(name, "r0", [Release("0", skip="not needed")])
    assert await facts(bench) == []
    await bench.shard.purge("flow")
    bench.clock.advance(1)
    await bench.shard.submit([structs.replace(run, run_id="r1", begun_ms=bench.clock())])
    await fail(bench, *await bench.take())
    assert [fact.kind for fact in await facts(bench)] == [NotificationKind.CYCLE_FAILED]


async def test_skipping_a_withheld_component_still_notifies_of_a_node_that_failed_before(bench: Bench) -> None:
    plan, name = plan_of("a>b c", run_if={"b": RunIf.ALL_DONE}), RunName("flow", 0, 0)
    await bench.shard.save(plan)
    run = RunSubmission(name, "r0", USER, (("0", plan.digest),), 3, begun_ms=bench.clock(), withheld=("0",))
    await bench.shard.submit([run])
    await bench.shard.terminate("flow:0:0:a", "0", 0, "not this time", "bob")
    await fail(bench, *await bench.take())
    assert await facts(bench) == []
    await bench.shard.release(name, "r0", [Release("0", skip="not needed")])
    assert [(fact.kind, fact.total, fact.failed) for fact in await facts(bench)] == [
        (NotificationKind.CYCLE_FAILED, 3, 1)
    ]


@pytest.mark.parametrize(("by", "told"), [("ann", []), ("system", ["too slow"])])
async def test_timed_out_cycle_notifies_the_user_but_a_stopped_one_does_not(
    bench: Bench, by: str, told: list[str]
) -> None:
    await bench.submit(plan_of("a>b"), user_id=USER)
    await bench.shard.stop(RunName("flow", 0, 0), "r0", "", "too slow", by, DAY_MS)
    listed, _ = await bench.shard.list_notifications(USER, "", 10)
    assert [each.message for each in listed] == told
    assert [each.title for each in listed] == ['cycle 0 of flow "flow" was stopped' for _ in told]


async def test_newest_thousand_notifications_are_kept_for_seven_days(bench: Bench) -> None:
    def drafts(count: int) -> list[tuple[str, str, Fact]]:
        return [(USER, "", Fact(NotificationKind.SYSTEM_NOTIFICATION, title=str(at))) for at in range(count)]

    await bench.shard.publish(drafts(1))
    first = await bench.shard.newest_notification(USER)
    bench.clock.advance(7 * DAY_MS)
    await bench.shard.publish(drafts(2))
    assert len(await facts(bench)) == 3
    bench.clock.advance(1)
    assert (await bench.shard.list_notifications(USER, "", 10))[1] == 2
    assert [each.fact.title for each in (await bench.shard.notifications(USER, "0-0", 10)).entries] == ["0", "1"]
    for _ in range(10):
        await bench.shard.publish(drafts(100))
    assert len(await facts(bench)) == 1000
    assert (await bench.shard.notifications(USER, first, 1)).gap


async def test_notification_key_is_accepted_once_a_day_for_each_user(bench: Bench) -> None:
    fact = Fact(NotificationKind.SYSTEM_NOTIFICATION, title="noon")
    assert await bench.shard.publish([(USER, "k", fact), (USER, "k", fact), ("bob", "k", fact)]) == [True, False, True]
    bench.clock.advance(DAY_MS - 1)
    assert await bench.shard.publish([(USER, "k", fact), (USER, "", fact)]) == [False, True]
    bench.clock.advance(1)
    assert await bench.shard.publish([(USER, "k", fact)]) == [True]
    assert [len(await facts(bench, user)) for user in (USER, "bob")] == [3, 1]


async def test_read_notifications_stay_read(bench: Bench) -> None:
    for at in range(4):
        bench.clock.advance(1)
        await bench.shard.publish([(USER, "", Fact(NotificationKind.SYSTEM_NOTIFICATION, title=str(at)))])
    listed, _ = await bench.shard.list_notifications(USER, "", 10)
    for through, unread in ((listed[2], 2), (listed[3], 2), (listed[1], 1)):
        await bench.shard.mark_read(USER, through.notification_id)
        found, count = await bench.shard.list_notifications(USER, "", 10)
        assert (count, [each.read for each in found].count(False)) == (unread, unread)
    older, count = await bench.shard.list_notifications(USER, listed[1].notification_id, 1)
    assert ([each.fact.title for each in older], count) == (["1"], 1)
    await bench.shard.mark_read(USER, "")
    assert (await bench.shard.list_notifications(USER, "", 10))[1] == 0
    # Those that come later are not read, whatever position was named.
    await bench.shard.mark_read(USER, "9999999999999-0")
    bench.clock.advance(1)
    await bench.shard.publish([(USER, "", Fact(NotificationKind.SYSTEM_NOTIFICATION, title="new"))])
    assert (await bench.shard.list_notifications(USER, "", 10))[1] == 1


async def test_successful_flow_leaves_no_notification_keys(redis_bench: Bench, redis_server: RedisServer) -> None:
    bench, plan = redis_bench, plan_of("a>b")
    await bench.submit(plan, user_id=USER)
    (first,) = await bench.take()
    await bench.complete(first, out="1")
    (second,) = await bench.take()
    await bench.complete(second, out="1")
    assert [key for key in await redis_server.keys() if "task_events" in key or "notif" in key] == []


async def test_events_and_notifications_are_read_while_the_store_takes_no_writes(
    redis_bench: Bench, redis_server: RedisServer
) -> None:
    await redis_bench.complete(await task(redis_bench), out="1")
    shard = redis_bench.shard
    async with refusing_writes(redis_server, "the store is out of memory and accepts no writes"):
        assert await kinds(redis_bench) == [TaskEventKind.QUEUED, TaskEventKind.RUNNING, TaskEventKind.COMPLETED]
        (fact,) = await facts(redis_bench)
        (entry,) = (await shard.notifications(USER, "0-0", 10)).entries
        assert (entry.fact, entry.notification_id) == (fact, await shard.newest_notification(USER))
