"""The flush loop while its store is away, fails or hangs: nothing is lost, and nobody waits for ever."""

import asyncio

import pytest

from tests.unit.node_task_manager.conftest import Bench, forged, outcome
from tests.unit.node_task_manager.faulty_store import always
from tests.waiting import until
from tradewind.node_task_manager.use_cases import dispatch, report, report_flush
from tradewind.server.faults import Unavailable


async def test_failed_claim_is_retried(bench: Bench) -> None:
    await bench.accepted(await bench.save("a"))
    bench.store.refused["claim"] = always
    _, line = await bench.connect()
    await until(lambda: bench.store.count("claim") > 1, "it is tried again")
    del bench.store.refused["claim"]
    await until(lambda: line.nodes == ["a"], "the node is claimed")


async def test_node_task_of_lost_submit_answer_is_assigned_after_outage(bench: Bench) -> None:
    worker, line = await bench.connect()
    bench.store.refused["claim"] = always
    bench.dispatcher.request_claim()
    await until(lambda: bench.store.count("claim") > 5, "the store is away")
    del bench.store.refused["claim"]
    bench.store.lost.add("submit")
    with pytest.raises(ConnectionError):
        await bench.submit(await bench.save("a"))
    bench.store.lost.clear()
    bench.clock.advance(2_100)
    await until(lambda: line.nodes == ["a"], "what was claimed is sent after all")
    assert (line.resyncs > 0, len(worker.held)) == (True, 1)


async def test_resync_is_requested_only_after_store_is_back(bench: Bench) -> None:
    worker, line = await bench.connect()
    await bench.accepted(await bench.save("a", "b", "c"))
    await until(lambda: len(line.nodes) == 3, "all are given")
    bench.store.refused["complete"] = bench.store.refused["claim"] = always
    for sequence, given in enumerate(line.assigned, 2):
        tries = bench.store.count("complete")
        await bench.connections.handle_message(worker, sequence, [outcome(given)])
        await until(lambda: bench.store.count("complete") > tries, "it cannot be stored")  # noqa: B023
    assert line.resyncs == 0
    bench.store.refused.clear()
    await until(lambda: sorted(line.acknowledged) == [2, 3, 4], "all have taken effect")
    await until(lambda: line.resyncs == 1, "they are asked once")


async def test_repeated_outages_do_not_delay_lost_assignments_forever(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_REMIND_S", 0.05)
    _, line = await bench.connect()
    bench.store.lost.add("submit")
    with pytest.raises(ConnectionError):
        await bench.submit(await bench.save("a"))
    bench.store.lost.clear()
    bench.clock.advance(2_100)

    async def sent_in_the_midst_of_outages() -> bool:
        bench.dispatcher.recovered()
        return line.nodes == ["a"]

    await until(sent_in_the_midst_of_outages, "what was lost in the first one is sent")


async def test_each_recovery_gets_its_own_reminder(bench: Bench) -> None:
    await bench.connect()
    bench.dispatcher.recovered()
    bench.dispatcher.recovered()
    await until(lambda: bench.store.count("renew") == 2, "workers are reminded twice")


async def test_failing_submissions_do_not_delay_results(bench: Bench) -> None:
    worker, line = await bench.connect()
    await bench.accepted(await bench.save("a"))
    bench.store.refused["submit"] = always
    plan = await bench.save("b")
    refused = [bench.submit(plan, flow_id=f"f{at}") for at in range(3)]
    await bench.connections.handle_message(worker, 2, [outcome(line.assigned[0])])
    # The callers submit again as soon as they are refused, so there is always something to submit.
    for _ in range(20):
        ends = await asyncio.gather(*refused, return_exceptions=True)
        refused = [bench.submit(plan, flow_id=f"f{at}") for at in range(3)]
        assert [type(end) for end in ends] == [ConnectionError] * 3
    assert line.acknowledged == [2]
    await asyncio.gather(*refused, return_exceptions=True)


async def test_unstorable_result_is_dropped_without_delaying_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_flush, "_MAX_TRIES", 5)
    bad, its_line = await bench.connect("bad")
    bench.store.refused["complete"] = lambda outcomes, _vacancies: any(each.nonce == "forged" for each in outcomes)
    await bench.accepted(await bench.save("a"))
    good, line = await bench.connect("good")
    await bench.connections.handle_message(bad, 2, [forged(its_line.assigned[0])])
    for at in range(20):
        await bench.accepted(await bench.save("b"), flow_id=f"f{at}")
        await until(lambda: line.assigned or its_line.nodes[1:], "the next node is given")
        worker, at_line = (good, line) if line.assigned else (bad, its_line)
        await bench.connections.handle_message(worker, 3 + at, [outcome(at_line.assigned.pop())])
        await until(lambda at_line=at_line, at=at: 3 + at in at_line.acknowledged, "the good result is stored")
    await until(lambda: its_line.lost, "the bad one is given up")
    assert 2 in its_line.acknowledged
    stored = [[each.nonce for each in args[0]] for name, args in bench.store.calls if name == "complete"]
    assert all(nonces == ["forged"] for nonces in stored if "forged" in nonces)


async def test_failing_outcome_does_not_block_outcomes_in_flight_with_it(bench: Bench) -> None:
    worker, line = await bench.connect()
    await bench.accepted(await bench.save("a", "b"))
    await until(lambda: len(line.nodes) == 2, "both nodes are given")
    first, second = map(outcome, line.assigned)
    arrived = bench.store.held_up["complete"] = asyncio.Event()
    bench.store.refused["complete"] = lambda outcomes, _vacancies: first[1] in outcomes
    await bench.connections.handle_message(worker, 2, [first])
    await until(lambda: bench.store.count("complete") == 1, "the first is on its way")
    await bench.connections.handle_message(worker, 3, [second])
    await until(lambda: bench.store.count("complete") == 2, "the second is on its way")
    arrived.set()
    await until(lambda: bench.store.count("complete") > 3, "the first is tried again and again")
    assert line.acknowledged == [3]
    del bench.store.refused["complete"]
    await until(lambda: line.acknowledged == [3, 2], "the first has taken effect")


async def test_reports_are_not_read_beyond_the_waiting_bound_in_an_outage(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MAX_WAITING", 4)
    worker, line = await bench.connect()
    await bench.accepted(await bench.save("a"))
    await until(lambda: line.assigned, "the node is given")
    bench.store.refused["complete"] = always
    handled = 0

    async def talk() -> None:
        nonlocal handled
        while handled < 100:
            await bench.connections.handle_message(worker, 0, [forged(line.assigned[0])])
            handled += 1

    talking = asyncio.create_task(talk())
    await until(lambda: bench.store.count("complete") > 20, "it was tried many times")
    assert handled < 10
    del bench.store.refused["complete"]
    await talking


async def test_stop_fails_submissions_that_wait_for_a_hanging_store(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_STOP_S", 0.01)
    bench.store.unanswered["submit"] = asyncio.Event()
    plan = await bench.save("a")
    under_way = bench.submit(plan, flow_id="f1")
    await until(lambda: bench.store.count("submit"), "one is under way")
    waiting = bench.submit(plan, flow_id="f2")
    await bench.dispatcher.stop()
    for each in (under_way, waiting):
        with pytest.raises(Unavailable):
            await each


async def test_failed_give_back_is_retried(bench: Bench) -> None:
    leaving, its_line = await bench.connect("w1")
    await bench.accepted(await bench.save("a"))
    await until(lambda: its_line.nodes, "the node is given")
    _, line = await bench.connect("w2")
    bench.store.refused["give_back"] = always
    bench.connections.close(leaving)
    await until(lambda: bench.store.count("give_back"), "giving back fails")
    del bench.store.refused["give_back"]
    await until(lambda: line.nodes == ["a"], "the other worker has it")
