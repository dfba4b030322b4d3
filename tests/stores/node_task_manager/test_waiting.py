"""Suspended node tasks: nothing is held; a signal or a time ends the wait once; stops and total times for good."""

import asyncio
from dataclasses import replace

from tests.stores.node_task_manager.shards import RUN, Bench, plan_of, task_of
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.domain.waiting import MAX_KEPT, MAX_KEPT_OF_RUN, MAX_REQUESTS, Resumption, Signal, Wait
from tradewind.node_task_manager.ports.work import Assignment, Outcome, OutcomeKind

CHAIN = plan_of("a.out>b.in")
PAID = Wait("paid")
DELAY = Plan("delay", (PlanNode("a", "delay", wait=Wait(after_ms=1_000, completes="output")),), ())


async def suspend(bench: Bench, given: Assignment, wait: Wait) -> str:
    outcome = Outcome(given.task_id, given.attempt, given.nonce, OutcomeKind.SUSPENDED, wait=wait)
    return (await bench.shard.complete([outcome])).results[0]


async def signal(bench: Bench, attempt: int = 1, **fields: str) -> str:
    sent = Signal("flow:0:0:a", "0", "paid", "7", "ann", attempt=attempt)
    return (await bench.shard.signal(replace(sent, **fields))).results[0]  # type: ignore[arg-type]


async def begun(bench: Bench, wait: Wait, plan: Plan = CHAIN) -> Assignment:
    await bench.submit(plan)
    (given,) = await bench.take()
    assert await suspend(bench, given, wait) == ""
    return given


async def test_suspended_node_task_holds_no_lease_or_slot_and_resumes_with_the_signal(bench: Bench) -> None:
    bench.shard.configure(SystemConfig(max_running_per_user=1))
    given = await begun(bench, PAID)
    found = await task_of(bench)
    assert (found.status, found.wait, found.slots) == ("suspended", replace(PAID, since=bench.clock()), ())
    assert await bench.shard.held_by("w1") == []
    assert await bench.shard.held(["user:default"]) == [0]
    # A worker that did not hear that its message took effect sends it again.
    assert await suspend(bench, given, PAID) == ""
    assert await bench.complete(given, out="1") != ""
    bench.clock.advance(40 * 24 * 3600 * 1000)
    await bench.shard.reap()
    assert await signal(bench) == "resumed"
    (again,) = await bench.take()
    assert (again.attempt, again.resumed) == (2, Resumption(bench.clock(), "paid", "7", "ann"))
    assert await bench.complete(again, out="1") == ""
    assert (await task_of(bench)).failures == 0
    assert (await bench.statuses(CHAIN))["b"] == "pending"


async def test_one_of_five_concurrent_signals_ends_the_wait(bench: Bench) -> None:
    await begun(bench, replace(PAID, completes="out"))
    answers = await asyncio.gather(*(signal(bench, handle="out", payload=str(at)) for at in range(5)))
    assert sorted(answers) == ["ended"] * 4 + ["resumed"]
    done = await task_of(bench)
    assert (done.status, done.outputs) == ("completed", (("out", str(answers.index("resumed"))),))


async def test_repeated_signal_request_takes_effect_once_and_gets_the_same_answer(bench: Bench) -> None:
    await begun(bench, PAID)
    assert [await signal(bench, request_id="r1") for _ in range(3)] == ["resumed"] * 3
    (again,) = await bench.take()
    await suspend(bench, again, PAID)
    assert await signal(bench, 2, request_id="r1") == "resumed"
    assert (await task_of(bench)).status == "suspended"


async def test_delay_of_a_cycle_that_is_due_in_a_moment_counts_from_its_planned_time(bench: Bench) -> None:
    planned_ms = bench.clock() + 700
    await bench.submit(DELAY, planned_ms=planned_ms)
    bench.clock.advance(705)
    await bench.shard.reap()
    found = await task_of(bench)
    assert (found.status, found.retry_at) == ("suspended", planned_ms + 5 + 1_000)
    bench.clock.advance(1_000)
    await bench.shard.reap()
    assert (await task_of(bench)).status == "completed"


async def test_stop_skips_a_waiting_node_before_its_planned_time(bench: Bench) -> None:
    await bench.submit(DELAY, planned_ms=bench.clock() + 700)
    await bench.shard.stop(RunName("flow", 0, 0), "r0", "", "enough", "ann", 1_000)
    assert (await task_of(bench)).status == "skipped"
    bench.clock.advance(2_000)
    await bench.shard.reap()
    assert (await task_of(bench)).status == "skipped"


async def test_early_signal_is_kept_and_ends_the_wait_for_it(bench: Bench) -> None:
    await bench.submit(CHAIN)
    assert await signal(bench, -1, signal="other") == "kept"
    assert await signal(bench, -1, payload="8") == "kept"
    assert await signal(bench, 1) == "changed"
    (given,) = await bench.take()
    signalled_at = bench.clock()
    bench.clock.advance(1_000)
    await suspend(bench, given, PAID)
    (again,) = await bench.take()
    assert again.resumed == Resumption(signalled_at, "paid", "8", "ann")
    await suspend(bench, again, PAID)
    assert (await task_of(bench)).status == "suspended"
    assert await signal(bench, -1) == "changed"


async def test_number_of_kept_signals_is_bounded(bench: Bench) -> None:
    await bench.submit(CHAIN)
    answers = [await signal(bench, -1) for _ in range(MAX_KEPT + 1)]
    assert answers == ["kept"] * MAX_KEPT + ["full"]


async def test_number_of_kept_signals_of_a_run_is_bounded(bench: Bench) -> None:
    nodes = [f"n{at}" for at in range(MAX_KEPT_OF_RUN // MAX_KEPT + 1)]
    await bench.submit(plan_of(" ".join(nodes)))
    answers = [
        await signal(bench, -1, task_id=f"flow:0:0:{node}", signal=str(at)) for node in nodes for at in range(MAX_KEPT)
    ]
    assert answers == ["kept"] * MAX_KEPT_OF_RUN + ["full"] * MAX_KEPT
    (given, *_) = await bench.take()
    await suspend(bench, given, Wait("0"))
    assert await signal(bench, -1, task_id=f"flow:0:0:{nodes[-1]}") == "kept", "one has been used"


async def test_latest_signal_requests_are_remembered(bench: Bench) -> None:
    given = await begun(bench, PAID)
    for at in range(MAX_REQUESTS + 1):
        assert await signal(bench, at + 1, request_id=f"r{at}") == "resumed"
        (given,) = await bench.take()
        await suspend(bench, given, PAID)
    assert await signal(bench, given.attempt, request_id="r1") == "resumed"
    assert (await task_of(bench)).status == "suspended", "it was done before"
    assert await signal(bench, given.attempt, request_id="r0") == "resumed"
    assert (await task_of(bench)).status == "pending"


async def test_kept_signal_does_not_answer_a_form(bench: Bench) -> None:
    await bench.submit(CHAIN)
    await signal(bench, -1)
    (given,) = await bench.take()
    await suspend(bench, given, replace(PAID, form='{"title":"Sure?"}', title="Sure?"))
    assert (await task_of(bench)).status == "suspended"


async def test_a_time_ends_a_wait_without_a_signal(bench: Bench) -> None:
    await bench.submit(CHAIN)
    (given,) = await bench.take()
    outcome = Outcome(given.task_id, 1, given.nonce, OutcomeKind.SUSPENDED, wait=replace(PAID, after_ms=5_000))
    assert (await bench.shard.complete([outcome])).due_in == 5_000
    bench.clock.advance(4_999)
    assert await bench.take() == []
    bench.clock.advance(1)
    (again,) = await bench.take()
    assert again.resumed == Resumption(bench.clock())
    assert await signal(bench) == "changed"


async def test_waiting_uses_up_no_retries(bench: Bench) -> None:
    given = await begun(bench, PAID, plan_of("a", retry=RetryPolicy(2, initial_ms=0)))
    for attempt in (1, 2, 3):
        assert await signal(bench, attempt) == "resumed"
        (given,) = await bench.take()
        await suspend(bench, given, PAID)
    assert ((await task_of(bench)).attempt, (await task_of(bench)).failures) == (4, 0)


async def test_total_time_ends_a_wait(bench: Bench) -> None:
    await begun(bench, PAID, plan_of("a", total_ms=3_000))
    bench.clock.advance(3_000)
    await bench.shard.claim()
    failed = await task_of(bench)
    assert failed.error is not None
    assert (failed.status, failed.error.code) == ("failed", "TOTAL_TIMEOUT")
    assert [line.message for line in await bench.shard.lines(RUN, "", 9)] == [failed.error.summary]


async def test_a_stop_ends_a_wait(bench: Bench) -> None:
    await begun(bench, replace(PAID, after_ms=5_000))
    await bench.shard.terminate("flow:0:0:a", "0", 0, "no more", "ann")
    stopped = await task_of(bench)
    assert (stopped.status, stopped.reason, stopped.retry_at) == ("terminated", "no more", 0)
    assert (await bench.statuses(CHAIN))["b"] == "skipped"
    assert await signal(bench) == "ended"


async def test_stopped_run_ends_waits_and_terminates_nodes_that_suspend_later(bench: Bench) -> None:
    plan = plan_of("a c")
    await bench.submit(plan)
    first, second = await bench.take()
    await suspend(bench, first, PAID)
    await bench.shard.stop(RunName("flow", 0, 0), "r0", "", "enough", "ann", 10**6)
    assert await suspend(bench, second, PAID) == ""
    assert set((await bench.statuses(plan)).values()) == {"terminated"}


async def test_purged_flow_leaves_no_wait(bench: Bench) -> None:
    await begun(bench, replace(PAID, after_ms=5_000))
    while not (await bench.shard.purge("flow")).done:
        pass
    assert await signal(bench) == "unknown"
    bench.clock.advance(5_000)
    assert await bench.take() == []


async def test_delay_node_passes_its_input_on(bench: Bench) -> None:
    large = '"' + "v" * 9000 + '"'
    pause = PlanNode("pause", "delay", wait=Wait(after_ms=700, late=("output", "null"), passes=True))
    plan = plan_of("a.out>pause.in pause.output>z.in")
    plan = Plan("delayed", (plan.nodes[0], pause, plan.nodes[2]), plan.edges)
    await bench.submit(plan)
    (given,) = await bench.take()
    await bench.complete(given, out=large)
    assert (await task_of(bench, "pause")).status == "suspended"
    bench.clock.advance(700)
    await bench.shard.claim()
    assert (await task_of(bench, "pause")).outputs == (("output", large),)
    assert [each.task_id for each in await bench.take()] == ["flow:0:0:z"]


async def test_wait_of_an_attempt_that_the_store_lost_resumes_with_a_signal_that_came_before(bench: Bench) -> None:
    """The store remembers the node task as queued, and takes it out of the queue and puts it back in one step."""
    await bench.submit(CHAIN)
    assert await signal(bench, attempt=-1) == "kept"
    forgotten = Outcome("flow:0:0:a", 1, "r0-forgotten", OutcomeKind.SUSPENDED, wait=PAID)
    assert (await bench.shard.complete([forgotten])).results == ("",)
    (again,) = await bench.take()
    assert (again.attempt, again.resumed) == (2, Resumption(bench.clock(), "paid", "7", "ann"))
