"""The flush loop at every moment at which a store, a worker or a caller may go away: it must lose nothing."""

import asyncio
from typing import Any

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from tests.unit.node_task_manager.conftest import Bench, held, outcome
from tests.unit.node_task_manager.faulty_store import always
from tests.waiting import until
from tradewind.node_task_manager.use_cases import dispatch, report, run_queue
from tradewind.node_task_manager.use_cases.replica_messages import ReplicaListener
from tradewind.server.faults import Exhausted, Unavailable


async def test_wakeup_is_not_lost_while_all_room_is_promised(bench: Bench) -> None:
    await bench.connect(capacity=1)
    await until(lambda: bench.store.count("claim"), "the worker's room is offered once")
    await bench.settled()
    answered = bench.store.unanswered["claim"] = asyncio.Event()
    bench.dispatcher.request_claim()
    claims = bench.store.count("claim") + 1
    await until(lambda: bench.store.count("claim") == claims, "all room is offered")
    bench.dispatcher.request_claim()
    answered.set()
    await until(lambda: bench.store.count("claim") == claims + 1, "it looks again")


async def test_room_freed_by_one_shard_is_offered_to_waiting_shard(bench: Bench) -> None:
    await bench.connect(capacity=1)
    await until(lambda: all(store.count("claim") for store in bench.stores), "the room was offered")
    await bench.settled()
    answered = bench.store.unanswered["claim"] = asyncio.Event()
    other = bench.stores[1].count("claim")
    bench.dispatcher.request_claim()
    await until(lambda: not bench.pool.has_room, "the first shard has all room")
    bench.dispatchers[1].request_claim()
    answered.set()
    await until(lambda: bench.stores[1].count("claim") > other, "the second shard looks")


async def test_leftover_script_work_continues_without_workers(bench: Bench) -> None:
    effects = structs.replace(await bench.store.claim([]), todo=1)
    before = bench.store.count("claim")
    bench.dispatcher.apply(effects)
    await until(lambda: bench.store.count("claim") == before + 1, "the rest is worked on")


async def test_renewal_does_not_resend_node_task_ended_in_same_message(bench: Bench) -> None:
    worker, line = await bench.connect()
    await bench.accepted(await bench.save("a", "b"))
    await until(lambda: len(line.nodes) == 2, "both are given")
    a, b = line.assigned
    bench.clock.advance(5_000)
    bench.store.refused["complete"] = always
    await bench.connections.handle_message(worker, 2, [outcome(a)], renewed=[held(b)])
    await until(lambda: bench.store.count("complete") > 1, "it cannot be stored")
    assert bench.store.count("renew") == 0
    del bench.store.refused["complete"]
    await until(lambda: line.acknowledged == [2, 2], "the message has taken effect")
    assert (line.nodes, list(worker.held)) == (["a", "b"], [b.assignment.nonce])


@pytest.mark.parametrize("verb", ["complete", "give_back"])
async def test_renewal_does_not_resend_node_task_with_unstored_report(bench: Bench, verb: str) -> None:
    worker, line = await bench.connect()
    await bench.accepted(await bench.save("a"))
    await until(lambda: line.nodes, "the node is given")
    bench.clock.advance(20_000)
    worker.capacity = 0
    tries = 0

    def refused(*_: object) -> bool:
        nonlocal tries
        tries += 1
        return tries <= 2

    bench.store.refused[verb] = refused
    bench.store.refused["renew"] = lambda *_: tries < 2
    (given,) = line.assigned
    if verb == "complete":
        await bench.connections.handle_message(worker, 2, [outcome(given)])
    else:
        await bench.connections.handle_message(worker, 2, given_back=[held(given)])
    await bench.connections.handle_message(worker, 3, renewed=[])
    # The renewal concerns both shards.
    await until(lambda: sorted(line.acknowledged) == [2, 3, 3], "both have taken effect")
    assert (line.nodes, line.lost, worker.held, worker.unnamed) == (["a"], [], {}, set())


async def test_message_is_acknowledged_only_after_its_give_backs_are_stored(bench: Bench) -> None:
    worker, line = await bench.connect(capacity=1)
    await bench.accepted(await bench.save("a"))
    await until(lambda: line.nodes, "the node is given")
    worker.capacity = 0
    bench.store.refused["give_back"] = always
    await bench.connections.handle_message(worker, 2, given_back=[held(line.assigned[0])])
    await until(lambda: bench.store.count("give_back") > 1, "it cannot be given back")
    assert (line.acknowledged, len(worker.held)) == ([], 1)
    del bench.store.refused["give_back"]
    await until(lambda: line.acknowledged == [2], "it is given back")
    assert worker.held == {}


async def test_large_report_is_split_and_acknowledged_as_a_whole(bench: Bench) -> None:
    most, rest = report.MAX_OUTCOMES, 10
    worker, line = await bench.connect(capacity=most + rest)
    await bench.accepted(await bench.save(*(f"n{at}" for at in range(most + rest))))
    await until(lambda: len(line.assigned) == most + rest, "all nodes are given")
    await bench.connections.handle_message(worker, 2, [outcome(each) for each in line.assigned])
    await until(lambda: line.acknowledged == [2, 2], "both parts have taken effect")
    assert line.expected == [(2, 2)]
    completed = [len(args[0]) for name, args in bench.store.calls if name == "complete"]
    assert completed == [most, rest]


async def test_script_takes_half_of_the_outcomes_that_wait_between_25_and_100(bench: Bench) -> None:
    worker, line = await bench.connect(capacity=300)
    await bench.accepted(await bench.save(*(f"n{at}" for at in range(300))))
    await until(lambda: len(line.assigned) == 300, "all nodes are given")
    await bench.connections.handle_message(worker, 2, [outcome(each) for each in line.assigned])
    await until(lambda: not worker.held, "all have taken effect")
    assert [len(args[0]) for name, args in bench.store.calls if name == "complete"] == [100, 100, 50, 25, 25]


async def test_at_most_two_complete_scripts_run_at_a_time(bench: Bench) -> None:
    worker, line = await bench.connect()
    await bench.accepted(await bench.save("a", "b", "c", "d"))
    await until(lambda: len(line.nodes) == 4, "all nodes are given")
    answered = bench.store.unanswered["complete"] = asyncio.Event()
    for at, ready in enumerate(line.assigned):
        await bench.connections.handle_message(worker, 2 + at, [outcome(ready)])
        await until(lambda at=at: bench.store.count("complete") == min(at + 1, 2), "it is sent, or waits")
    answered.set()
    await until(lambda: sorted(line.acknowledged) == [2, 3, 4, 5], "all have taken effect")
    sent = [len(args[0]) for name, args in bench.store.calls if name == "complete"]
    assert sent == [1, 1, 2]
    await bench.settled()
    assert (worker.held, worker.room) == ({}, 10)


async def test_run_submitted_while_outcomes_are_stored_needs_no_claim(bench: Bench) -> None:
    worker, line = await bench.connect(capacity=100)
    await bench.accepted(await bench.save("a"))
    answered = bench.store.unanswered["complete"] = asyncio.Event()
    await bench.connections.handle_message(worker, 2, [outcome(line.assigned[0])])
    await until(lambda: bench.store.count("complete"), "the outcome is on its way")
    before = bench.store.count("claim")
    await bench.accepted(await bench.save("b"), flow_id="another")
    await until(lambda: line.nodes == ["a", "b"], "its node is given")
    assert bench.store.count("claim") == before
    answered.set()
    await until(lambda: line.acknowledged == [2], "the outcome has taken effect")


async def test_outcomes_reported_in_one_loop_turn_are_stored_together(bench: Bench) -> None:
    worker, line = await bench.connect()
    await bench.accepted(await bench.save("a", "b"))
    await bench.settled()
    bench.store.unanswered["complete"] = asyncio.Event()
    a, b = line.assigned
    for each in (a, b):
        await bench.connections.handle_message(worker, 2, [outcome(each)])
    assert bench.store.count("complete") == 0
    await until(lambda: bench.store.count("complete"), "they are on their way")
    assert [len(args[0]) for name, args in bench.store.calls if name == "complete"] == [2]
    bench.store.unanswered["complete"].set()
    await until(lambda: line.acknowledged == [2, 2], "both have taken effect")


async def test_worker_is_assigned_node_before_submitter_is_answered(bench: Bench) -> None:
    _, line = await bench.connect()
    given: list[int] = []
    submitted = bench.submit(await bench.save("a"))
    submitted.add_done_callback(lambda _: given.append(len(line.assigned)))
    await until(lambda: given, "it is answered")
    assert given == [1]


async def test_give_back_waits_for_outcomes_in_flight(bench: Bench) -> None:
    worker, line = await bench.connect()
    await bench.accepted(await bench.save("a", "b"))
    await until(lambda: len(line.nodes) == 2, "both nodes are given")
    a, b = line.assigned
    answered = bench.store.unanswered["complete"] = asyncio.Event()
    await bench.connections.handle_message(worker, 2, [outcome(a)])
    await until(lambda: bench.store.count("complete") == 1, "an outcome is on its way")
    await bench.connections.handle_message(worker, 3, given_back=[held(b)])
    await asyncio.sleep(0)
    assert bench.store.count("give_back") == 0
    answered.set()
    await until(lambda: line.acknowledged == [2, 3], "both have taken effect")
    assert [name for name, _ in bench.store.calls if name in ("complete", "give_back")] == ["complete", "give_back"]


async def test_number_of_waiting_runs_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_queue, "MAX_WAITING", 3)
    plan = await bench.save("a")
    answered = bench.store.unanswered["submit"] = asyncio.Event()
    waiting = [bench.submit(plan, flow_id="first")]
    await until(lambda: bench.store.count("submit"), "one is under way")
    waiting += [bench.submit(plan, flow_id=f"f{at}") for at in range(4)]
    with pytest.raises(Exhausted):
        bench.dispatcher.require_room()
    answered.set()
    await asyncio.gather(*waiting)
    bench.dispatcher.require_room()


async def test_runs_that_cannot_be_stored_are_logged_once(bench: Bench) -> None:
    plan = await bench.save("a")
    bench.store.refused["submit"] = always
    with capture_logs() as logged:
        for at in range(3):
            with pytest.raises(ConnectionError):
                await bench.submit(plan, flow_id=f"f{at}")
    assert [each["event"] for each in logged].count("runs_not_submitted") == 1


async def test_submissions_are_split_by_bytes_and_cancelled_ones_are_skipped(bench: Bench) -> None:
    plan = await bench.save("a")
    answered = bench.store.unanswered["submit"] = asyncio.Event()
    first = bench.submit(plan, flow_id="first")
    await until(lambda: bench.store.count("submit"), "one is under way")
    large = '{"x":"' + "x" * 1_500_000 + '"}'
    two = [bench.submit(plan, flow_id=f"f{at}", inputs=large) for at in range(2)]
    unwanted = bench.submit(plan, flow_id="unwanted")
    unwanted.cancel()
    answered.set()
    await asyncio.gather(first, *two)
    submitted = [[run.run.flow_id for run in args[0]] for name, args in bench.store.calls if name == "submit"]
    assert submitted == [["first"], ["f0"], ["f1"]]


async def test_stopping_dispatcher_stores_results_and_refuses_new_runs(bench: Bench) -> None:
    worker, line = await bench.connect()
    await bench.accepted(await bench.save("a"))
    answered = bench.store.unanswered["claim"] = asyncio.Event()
    claims = bench.store.count("claim")
    bench.dispatcher.request_claim()
    await until(lambda: bench.store.count("claim") > claims, "a claim is under way")
    await bench.connections.handle_message(worker, 2, [outcome(line.assigned[0])])
    stopping = asyncio.create_task(bench.dispatcher.stop())
    answered.set()
    await stopping
    assert bench.store.count("complete") == 1
    with pytest.raises(Unavailable):
        await bench.submit(await bench.save("b"))


async def test_dispatcher_stops_as_soon_as_results_under_way_are_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_STOP_S", 600)
    worker, line = await bench.connect()
    await bench.accepted(await bench.save("a"))
    await bench.settled()
    stored = bench.store.unanswered["complete"] = asyncio.Event()
    await bench.connections.handle_message(worker, 2, [outcome(line.assigned[0])])
    await until(lambda: bench.store.count("complete"), "the result is on its way")
    stopping = asyncio.create_task(bench.dispatcher.stop())
    await asyncio.sleep(0)
    stored.set()
    await asyncio.wait_for(stopping, 10)


async def test_failed_stream_open_gives_back_held_node_tasks(bench: Bench) -> None:
    worker, line = await bench.connect("w1")
    await bench.accepted(await bench.save("a"))
    await until(lambda: line.nodes, "the node is given")
    bench.stores[1].refused["open_session"] = always
    worker.sessions.clear()
    with pytest.raises(ConnectionError):
        await bench.connections.open(worker, [held(line.assigned[0])], lambda _session: None)
    bench.connections.close(worker)
    bench.stores[1].refused.clear()
    _, other = await bench.connect("w2")
    await until(lambda: other.nodes == ["a"], "another worker has it")


async def test_unknown_replica_message_is_ignored(bench: Bench) -> None:
    """A later release may send news that this one does not know."""
    await bench.connect("w1")
    nobody: Any = None
    listener = ReplicaListener(bench.dispatchers, bench.pool, nobody, nobody, nobody, nobody, nobody)
    listener(0, "w:w1")
    await until(lambda: bench.store.count("renew") == 1, "the worker hears what there is")
    listener(0, "x:w1")
    listener(0, "w:w1")
    await until(lambda: bench.store.count("renew") > 1, "it hears it again")
    assert bench.store.count("renew") == 2
