"""Handing over cycles: batches, plans, refusals, and what happens to the rest when one is at fault."""

import asyncio

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from tests.unit.scheduler.memory_scheduler import DirectNodeTasks, MemoryScheduler
from tradewind.scheduler.domain.chain_state import STOP, CycleOrigin, StopRequest
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.rerun import Rerun
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.submission import SubmitAnswer, SubmitOutcome
from tradewind.scheduler.ports.peers import PeerRefused, PeerUnavailable
from tradewind.scheduler.use_cases.hand_over import retry_after


async def test_batch_holds_at_most_500_nodes() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register(nodes=100)
    scheduler.node_tasks.plans.update(digest for _, digest in (await scheduler.planned()).components)
    runs = [await scheduler.run() for _ in range(12)]
    await scheduler.hand_over(runs)
    assert [len(names) for names, _ in scheduler.node_tasks.asked] == [5, 5, 2]


async def test_run_of_over_500_nodes_is_submitted_alone() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register("large", nodes=700)
    await scheduler.register("small")
    runs = [await scheduler.run(flow_id) for flow_id in ("small", "large", "small")]
    await scheduler.hand_over(runs)
    first_tries = [[name.flow_id for name in names] for names, plans in scheduler.node_tasks.asked if not plans]
    assert first_tries == [["small", "small"], ["large"]]


async def test_batch_size_is_limited_by_inputs() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    scheduler.node_tasks.plans.update(digest for _, digest in (await scheduler.planned()).components)
    inputs = '{"a":"' + "x" * 400_000 + '"}'
    runs = [await scheduler.run(inputs_json=inputs) for _ in range(5)]
    await scheduler.hand_over(runs)
    assert [len(names) for names, _ in scheduler.node_tasks.asked] == [2, 2, 1]


async def test_scheduled_cycles_do_not_wait_behind_a_bulk_call() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register("bulk", nodes=500)
    await scheduler.register("feed")
    for flow_id in ("bulk", "feed"):
        scheduler.node_tasks.plans.update(digest for _, digest in (await scheduler.planned(flow_id)).components)
    many = [await scheduler.run("bulk") for _ in range(3)]
    due = await scheduler.run("feed")
    due = structs.replace(
        due, state=structs.replace(due.state, facts=structs.replace(due.state.facts, origin=CycleOrigin.SCHEDULE))
    )
    await asyncio.gather(scheduler.hand_over(many), scheduler.hand_over([due]))
    assert [[name.flow_id for name in names] for names, _ in scheduler.node_tasks.asked] == [["feed"], *[["bulk"]] * 3]


async def test_unknown_plans_are_sent_once_in_messages_of_a_mebibyte() -> None:
    scheduler = MemoryScheduler()
    for number in range(5):
        await scheduler.register(f"f{number}", config="x" * 250_000 + str(number))
    runs = [await scheduler.run(f"f{number}") for number in (0, 0, 1, 2, 3, 4, 4, 0, 1, 2, 3)]
    await scheduler.hand_over(runs)
    sent = [(len(names), len(plans)) for names, plans in scheduler.node_tasks.asked]
    assert sent == [(11, 0), (5, 4), (5, 4), (1, 1)], "a plan counts again in the next message"


async def test_refused_run_does_not_block_others_of_its_batch() -> None:
    node_tasks = DirectNodeTasks()
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register()
    node_tasks.plans.update(digest for _, digest in (await scheduler.planned()).components)
    runs = [await scheduler.run() for _ in range(4)]
    node_tasks.outcomes = [PeerRefused("no good"), PeerRefused("no good"), PeerRefused("no good")]
    states = await scheduler.hand_over(runs)
    assert [state.reason for state in states] == ["the node task manager refused it: no good", "", "", ""]


async def test_outage_stores_reason_and_time_of_the_next_try() -> None:
    node_tasks = DirectNodeTasks(outcomes=[PeerUnavailable("node task manager", "down")])
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register()
    run = await scheduler.run()
    (state,) = await scheduler.hand_over([run])
    assert state == await scheduler.state(run.state.name)
    assert "cannot be reached" in state.reason
    assert scheduler.stores.data.open[state.name] == scheduler.clock.now_ms() + 1000


async def test_outage_is_logged_once_for_many_cycles() -> None:
    scheduler = MemoryScheduler(DirectNodeTasks(outcomes=[PeerUnavailable("node task manager", "down")] * 3))
    await scheduler.register()
    with capture_logs() as logs:
        for _ in range(3):
            await scheduler.hand_over([await scheduler.run()])
    assert [(log["event"], log["error"]) for log in logs if log["log_level"] == "warning"] == [
        ("cycles_not_submitted", "down")
    ]


async def next_try(error: PeerUnavailable, age_ms: int) -> int:
    """Return in how many ms a run of this age is retried after this error."""
    scheduler = MemoryScheduler(DirectNodeTasks(outcomes=[error]))
    await scheduler.register()
    run = await scheduler.run()
    scheduler.clock.advance(age_ms)
    await scheduler.hand_over([run])
    return scheduler.stores.data.open[run.state.name] - scheduler.clock.now_ms()


async def test_unreachable_peer_is_retried_after_a_second_at_any_age() -> None:
    assert await next_try(PeerUnavailable("node task manager", "hangs"), 20_000) == 1000


async def test_answered_error_is_retried_less_often_with_age() -> None:
    assert await next_try(PeerUnavailable("node task manager", "INTERNAL", answered=True), 20_000) == 20_000


async def test_refusal_ends_an_outage() -> None:
    scheduler = MemoryScheduler(
        DirectNodeTasks(outcomes=[PeerUnavailable("node task manager", "down"), PeerRefused("no")])
    )
    await scheduler.register()
    run = await scheduler.run()
    (state,) = await scheduler.hand_over([run])
    scheduler.clock.advance(20_000)
    (state,) = await scheduler.hand_over([structs.replace(run, state=state)])
    assert state.reason == "the node task manager refused it: no"
    assert scheduler.stores.data.open[state.name] == scheduler.clock.now_ms() + 20_000


async def test_refused_run_is_retried_when_the_answer_says() -> None:
    refused = SubmitAnswer(SubmitOutcome.REFUSED, reason="QUEUE_FULL", retry_ms=7000)
    scheduler = MemoryScheduler(DirectNodeTasks(outcomes=[refused, refused]))
    await scheduler.register()
    run = await scheduler.run()
    for _ in range(2):
        (state,) = await scheduler.hand_over([run])
        assert state.reason == "the node task manager refused it: QUEUE_FULL"
        assert scheduler.stores.data.open[state.name] == scheduler.clock.now_ms() + 7000
        run = structs.replace(run, state=state)
    (line,) = scheduler.stores.data.flows["f"].logs[0]
    assert line.text == "Not submitted yet: the node task manager refused it: QUEUE_FULL", "said once"


async def test_taken_cycle_numbers_are_skipped_in_growing_steps() -> None:
    taken = SubmitAnswer(SubmitOutcome.RUN_CONFLICT)
    node_tasks = DirectNodeTasks(outcomes=[taken, taken, taken])
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register()
    node_tasks.plans.update(digest for _, digest in (await scheduler.planned()).components)
    run = await scheduler.run()
    (state,) = await scheduler.hand_over([run])
    assert [names[0].cycle for names, _ in node_tasks.asked] == [0, 1, 3, 7]
    assert (state.name.cycle, state.reason) == (7, "")
    assert state.facts.run_id == run.state.facts.run_id
    assert await scheduler.stores.states.load(run.state.name) is None
    assert [scheduler.open_states.get(RunName("f", cycle)) for cycle in (0, 1, 3)] == [None] * 3


async def test_renumbered_run_keeps_its_facts() -> None:
    """A node of another flow may wait for it, or a backfill count it."""
    scheduler = MemoryScheduler(DirectNodeTasks(outcomes=[SubmitAnswer(SubmitOutcome.RUN_CONFLICT)]))
    await scheduler.register()
    parent = Parent(RunName("above", 3), "above-run", "sub", 1, depth=2)
    run = await scheduler.run(
        origin=CycleOrigin.SUB_FLOW, parent=parent, inputs_json='{"x":1}', traceparent=f"00-{'1' * 32}-{'2' * 16}-01"
    )
    facts = structs.replace(run.state.facts, backfill_id=7)
    (state,) = await scheduler.hand_over([structs.replace(run, state=structs.replace(run.state, facts=facts))])
    assert (state.name.cycle, state.facts) == (1, facts)


async def test_run_that_is_renumbered_after_a_new_revision_runs_that_one() -> None:
    node_tasks = DirectNodeTasks(outcomes=[SubmitAnswer(SubmitOutcome.RUN_CONFLICT)])
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register()
    run = await scheduler.run()
    await scheduler.register(nodes=2)
    planned = await scheduler.planned()
    (state,) = await scheduler.hand_over([run])
    assert (state.facts.revision, state.facts.component_count) == (2, 2)
    assert node_tasks.asked[-1][1] == [digest for _, digest in planned.components]


async def test_run_that_began_no_later_than_its_flow_was_purged_does_not_try_number_after_number() -> None:
    """No number helps before the clock of the node task manager's store, which may be ahead, has been passed."""
    purged = SubmitAnswer(SubmitOutcome.REFUSED, reason="FLOW_DELETING")
    node_tasks = DirectNodeTasks(outcomes=[purged, purged, purged])
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register()
    node_tasks.plans.update(digest for _, digest in (await scheduler.planned()).components)
    (state,) = await scheduler.hand_over([await scheduler.run()])
    assert [names[0].cycle for names, _ in node_tasks.asked] == [0, 1]
    assert scheduler.stores.data.open[state.name] == scheduler.clock.now_ms() + 1000


async def test_renumbered_run_keeps_its_stop_request() -> None:
    node_tasks = DirectNodeTasks(outcomes=[SubmitAnswer(SubmitOutcome.RUN_CONFLICT)])
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register()
    run = await scheduler.run()
    stop = StopRequest("ada", "not today", scheduler.clock.now_ms(), request_id="r")
    await scheduler.write(structs.replace(run.state, stop=stop), {STOP})
    (state,) = await scheduler.hand_over([run])
    assert state == await scheduler.state(state.name)
    assert (state.name.cycle, state.stop) == (1, stop)
    assert node_tasks.stopped == [(state.name, "not today")]
    assert scheduler.open_states.get(state.name) == state


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (SubmitAnswer(SubmitOutcome.REFUSED, reason="RESULTS_EXPIRED"), "the results that it was to keep have expired"),
        (SubmitAnswer(SubmitOutcome.RUN_CONFLICT), "the node task manager has other runs under every number"),
    ],
)
async def test_rerun_that_cannot_go_on_fails(answer: SubmitAnswer, reason: str) -> None:
    scheduler = MemoryScheduler(DirectNodeTasks(outcomes=[answer]))
    await scheduler.register()
    run = await scheduler.run()
    facts = structs.replace(run.state.facts, rerun=Rerun(0, "before", ()))
    (state,) = await scheduler.hand_over([structs.replace(run, state=structs.replace(run.state, facts=facts))])
    assert (state.status, state.reason.startswith(reason)) == (CycleStatus.FAILED, True)
    assert (await scheduler.state(run.state.name)).status is CycleStatus.FAILED


async def test_cycle_of_a_deleted_flow_is_not_renumbered() -> None:
    scheduler = MemoryScheduler(DirectNodeTasks(outcomes=[SubmitAnswer(SubmitOutcome.RUN_CONFLICT)]))
    await scheduler.register()
    run = await scheduler.run()
    del scheduler.stores.data.flows["f"]
    (state,) = await scheduler.hand_over([run])
    assert state.reason == "the node task manager refused it: FLOW_DELETING"


def test_retry_delay_grows_with_age() -> None:
    assert [retry_after(age) for age in (0, 900, 1000, 5000, 60_000)] == [1000, 1000, 1000, 5000, 30_000]
    assert retry_after(0, 7000) == 7000
