"""Leases of node tasks, for every store: renewed, lost, kept across sessions, given back."""

from tests.stores.node_task_manager.shards import Bench, held, only_component, plan_of, task_of
from tradewind.node_task_manager.domain.component import ComponentStatus
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind, Vacancy


async def test_renewing_extends_held_leases_and_reports_lost_ones(bench: Bench) -> None:
    await bench.submit(plan_of("a b"))
    a, b = await bench.take()
    for _ in range(5):
        bench.clock.advance(20_000)
        renewal = await bench.shard.renew("w1", 0, held(a))
        assert (renewal.lost, renewal.lease_deadline) == ((), bench.clock() + 30_000)
        await bench.shard.reap()
    statuses = await bench.statuses(plan_of("a b"))
    assert statuses == {"a": "running", "b": "pending"}
    assert (await bench.shard.renew("w1", 0, held(b))).lost == ((b.nonce, "the lease lapsed"),)


async def test_an_attempt_cannot_outlive_its_timeout_by_renewing(bench: Bench) -> None:
    await bench.submit(plan_of("a", start_to_close_ms=40_000))
    (a,) = await bench.take()
    assert a.deadline_ms == bench.clock() + 40_000
    for _ in range(6):
        bench.clock.advance(9_000)
        await bench.shard.renew("w1", 0, held(a))
        await bench.shard.reap()
    (record,) = await bench.shard.tasks(["flow:0:0:a"])
    assert record is not None
    assert record.error is not None
    assert record.error.code == "TIMEOUT"


async def test_token_renews_the_lease_of_its_worker_even_if_another_names_it(bench: Bench) -> None:
    await bench.submit(plan_of("a"))
    (a,) = await bench.take(1, "w1")
    await bench.shard.renew("w2", 0, held(a))
    assert await bench.shard.held_by("w1") == [a.task_id]
    assert await bench.shard.held_by("w2") == []
    await bench.complete(a)
    assert await bench.shard.held_by("w1") == []


async def test_new_session_keeps_named_node_tasks_and_gives_back_the_rest(bench: Bench) -> None:
    await bench.submit(plan_of("a b c"))
    first = await bench.shard.open_session("w1", "i1", [])
    effects = await bench.shard.claim([Vacancy("w1", first.session, 3, ("noop",))])
    a, b, _c = effects.assignments
    second = await bench.shard.open_session("w1", "i1", held(a))
    assert second.session == first.session + 1
    assert await bench.statuses(plan_of("a b c")) == {"a": "running", "b": "pending", "c": "pending"}
    assert (await bench.shard.claim([Vacancy("w1", first.session, 3, ("noop",))])).stale_workers == ("w1",)
    assert (await bench.shard.give_back("w1", first.session, None)).results == ("replaced",)
    assert (await bench.shard.open_session("w1", "i1", held(b))).lost == (b.nonce,)
    (record,) = await bench.shard.tasks([b.task_id])
    assert record is not None
    assert record.lost == 0


async def test_session_that_the_store_has_lost_is_the_latest(bench: Bench) -> None:
    await bench.submit(plan_of("a b"))
    session = (await bench.shard.open_session("w1", "i1", [])).session
    bench.clock.advance(1000)
    lost = session + 500
    effects = await bench.shard.claim([Vacancy("w1", lost, 2, ("noop",))])
    assert (len(effects.assignments), effects.stale_workers) == (2, ())
    assert (await bench.shard.renew("w1", lost, held(effects.assignments[0]))).session_current
    assert (await bench.shard.give_back("w1", lost, None)).results == ("given_back",)
    assert await bench.statuses(plan_of("a b")) == {"a": "pending", "b": "pending"}
    assert (await bench.shard.open_session("w1", "i1", [])).session > lost
    assert (await bench.shard.claim([Vacancy("w1", lost, 2, ("noop",))])).stale_workers == ("w1",)


async def test_restarted_worker_loses_its_node_tasks(bench: Bench) -> None:
    await bench.submit(plan_of("a"))
    session = (await bench.shard.open_session("w1", "i1", [])).session
    await bench.shard.claim([Vacancy("w1", session, 1, ("noop",))])
    await bench.shard.open_session("w1", "i2", [])
    (record,) = await bench.shard.tasks(["flow:0:0:a"])
    assert record is not None
    assert (record.status, record.lost) == (NodeTaskStatus.PENDING, 1)


async def test_only_attempts_of_lost_workers_count_as_lost(bench: Bench) -> None:
    await bench.submit(plan_of("a b c", schedule_to_start_ms=20_000))
    a, b = await bench.take(2)
    assert (await bench.shard.give_back("w1", 0, held(a))).lost == 0
    bench.clock.advance(20_000)
    waited = await bench.shard.reap()
    assert (len(waited.results), waited.lost) == (2, 0)
    bench.clock.advance(10_000)
    lapsed = await bench.shard.reap()
    assert (lapsed.results, lapsed.lost) == ((b.task_id,), 1)
    await bench.take(1)
    assert (await bench.shard.give_back("w1", 0, None)).lost == 1


async def test_assignment_that_a_session_never_names_is_sent_again(bench: Bench) -> None:
    await bench.submit(plan_of("a b"))
    session = (await bench.shard.open_session("w1", "i1", [])).session
    effects = await bench.shard.claim([Vacancy("w1", session, 2, ("noop",))])
    a, b = effects.assignments
    assert (await bench.shard.renew("w1", session, held(a))).effects.assignments == ()
    bench.clock.advance(2000)
    assert (await bench.shard.renew("w1", session, held(a))).effects.assignments == (b,)


async def test_giving_back_named_node_tasks_queues_them_again(bench: Bench) -> None:
    await bench.submit(plan_of("a b"))
    a, b = await bench.take()
    await bench.shard.give_back("w1", 0, held(a))
    assert await bench.shard.held_by("w1") == [b.task_id]
    (again,) = await bench.take()
    assert (again.task_id, again.attempt) == (a.task_id, 2)


async def test_outcome_of_an_attempt_that_the_store_lost_is_accepted(bench: Bench) -> None:
    """An attempt newer than the record's is from the second that the store lost, unless it is of a run before."""
    await bench.submit(plan_of("a"))
    outcome = Outcome("flow:0:0:a", 1, "r1-removed", OutcomeKind.COMPLETED, (("out", "1"),))
    assert (await bench.shard.complete([outcome])).results == ("the lease lapsed; this is attempt 1, the latest is 0",)
    outcome = Outcome("flow:0:0:a", 1, "r0-forgotten", OutcomeKind.COMPLETED, (("out", "1"),))
    bench.clock.advance(1000)
    assert (await bench.shard.complete([outcome])).results == ("",)
    assert (await only_component(bench)).status is ComponentStatus.FINISHED
    # When it began is lost; that it began is not.
    assert (await task_of(bench)).started_at == bench.clock()
