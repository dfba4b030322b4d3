"""Handing over cycles: batches, plans, refusals, and what happens to the rest when one is at fault."""

import asyncio

from structlog.testing import capture_logs

from tests.unit.scheduler.memory_scheduler import DirectNodeTasks, MemoryScheduler
from tradewind.scheduler.domain.chain_state import STOP, CycleOrigin, StopRequest
from tradewind.scheduler.domain.submission import SubmitAnswer, SubmitOutcome
from tradewind.scheduler.ports.peers import PeerRefused, PeerUnavailable
from tradewind.scheduler.use_cases.hand_over import retry_after


async def test_a_batch_holds_at_most_500_nodes() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register(nodes=60)
    scheduler.node_tasks.plans.update(digest for _, digest in (await scheduler.planned()).components)
    runs = [await scheduler.run() for _ in range(20)]
    await scheduler.hand_over(runs)
    assert [len(names) for names, _ in scheduler.node_tasks.asked] == [8, 8, 4]


async def test_a_run_of_more_nodes_goes_alone() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register("large", nodes=700)
    await scheduler.register("small")
    runs = [await scheduler.run(flow_id) for flow_id in ("small", "large", "small")]
    await scheduler.hand_over(runs)
    first_tries = [[name.flow_id for name in names] for names, plans in scheduler.node_tasks.asked if not plans]
    assert first_tries == [["small"], ["large"], ["small"]]


async def test_large_inputs_end_a_batch_too() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    scheduler.node_tasks.plans.update(digest for _, digest in (await scheduler.planned()).components)
    inputs = '{"a":"' + "x" * 400_000 + '"}'
    runs = [await scheduler.run(inputs_json=inputs) for _ in range(5)]
    await scheduler.hand_over(runs)
    assert [len(names) for names, _ in scheduler.node_tasks.asked] == [2, 2, 1]


async def test_cycles_of_schedules_do_not_wait_behind_the_many_of_a_call() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register("bulk", nodes=500)
    await scheduler.register("feed")
    for flow_id in ("bulk", "feed"):
        scheduler.node_tasks.plans.update(digest for _, digest in (await scheduler.planned(flow_id)).components)
    many = [await scheduler.run("bulk") for _ in range(3)]
    due = await scheduler.run("feed")
    due = due._replace(state=due.state._replace(facts=due.state.facts._replace(origin=CycleOrigin.SCHEDULE)))
    await asyncio.gather(scheduler.hand_over(many), scheduler.hand_over([due]))
    assert [[name.flow_id for name in names] for names, _ in scheduler.node_tasks.asked] == [["feed"], *[["bulk"]] * 3]


async def test_unknown_plans_follow_in_messages_of_a_mebibyte_each_plan_once() -> None:
    scheduler = MemoryScheduler()
    for number in range(5):
        await scheduler.register(f"f{number}", config="x" * 250_000 + str(number))
    runs = [await scheduler.run(f"f{number}") for number in (0, 0, 1, 2, 3, 4, 4)]
    await scheduler.hand_over(runs)
    assert [(len(names), len(plans)) for names, plans in scheduler.node_tasks.asked] == [(7, 0), (5, 4), (2, 1)]


async def test_one_run_at_fault_does_not_hold_up_the_others() -> None:
    node_tasks = DirectNodeTasks()
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register()
    node_tasks.plans.update(digest for _, digest in (await scheduler.planned()).components)
    runs = [await scheduler.run() for _ in range(4)]
    node_tasks.outcomes = [PeerRefused("no good"), PeerRefused("no good"), PeerRefused("no good")]
    states = await scheduler.hand_over(runs)
    assert [state.reason for state in states] == ["the node task manager refused it: no good", "", "", ""]


async def test_an_outage_leaves_the_reason_and_the_time_of_the_next_try() -> None:
    node_tasks = DirectNodeTasks(outcomes=[PeerUnavailable("node task manager", "down")])
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register()
    run = await scheduler.run()
    (state,) = await scheduler.hand_over([run])
    assert state == await scheduler.state(run.state.name)
    assert "cannot be reached" in state.reason
    assert scheduler.stores.data.open[state.name] == scheduler.clock.now_ms() + 1000


async def test_an_outage_is_one_line_of_the_log_however_many_cycles_meet_it() -> None:
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


async def test_a_peer_that_was_not_reached_is_tried_soon_however_long_it_took_to_find_out() -> None:
    assert await next_try(PeerUnavailable("node task manager", "hangs"), 20_000) == 1000


async def test_an_error_that_was_answered_is_tried_less_often_with_age() -> None:
    assert await next_try(PeerUnavailable("node task manager", "INTERNAL", answered=True), 20_000) == 20_000


async def test_a_refusal_says_when_to_come_back() -> None:
    refused = SubmitAnswer(SubmitOutcome.REFUSED, reason="QUEUE_FULL", retry_ms=7000)
    scheduler = MemoryScheduler(DirectNodeTasks(outcomes=[refused]))
    await scheduler.register()
    run = await scheduler.run()
    (state,) = await scheduler.hand_over([run])
    assert state.reason == "the node task manager refused it: QUEUE_FULL"
    assert scheduler.stores.data.open[state.name] == scheduler.clock.now_ms() + 7000


async def test_a_taken_number_is_passed_by_in_growing_steps() -> None:
    taken = SubmitAnswer(SubmitOutcome.RUN_CONFLICT)
    node_tasks = DirectNodeTasks(outcomes=[taken, taken, taken])
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register()
    node_tasks.plans.update(digest for _, digest in (await scheduler.planned()).components)
    run = await scheduler.run()
    (state,) = await scheduler.hand_over([run])
    assert [names[0].cycle for names, _ in node_tasks.asked] == [0, 1, 3, 7]
    assert state.name.cycle == 7
    assert state.facts.run_id == run.state.facts.run_id
    assert await scheduler.stores.states.load(run.state.name) is None


async def test_a_run_that_was_asked_to_stop_is_under_its_new_number() -> None:
    node_tasks = DirectNodeTasks(outcomes=[SubmitAnswer(SubmitOutcome.RUN_CONFLICT)])
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register()
    run = await scheduler.run()
    stop = StopRequest("ada", "not today", scheduler.clock.now_ms(), request_id="r")
    await scheduler.stores.states.try_update(run.state._replace(stop=stop), {STOP})
    (state,) = await scheduler.hand_over([run])
    assert state == await scheduler.state(state.name)
    assert (state.name.cycle, state.stop) == (1, stop)
    assert node_tasks.stopped == [(state.name, "not today")]
    assert scheduler.open_states.get(state.name) == state


async def test_a_taken_number_of_a_deleted_flow_is_refused() -> None:
    scheduler = MemoryScheduler(DirectNodeTasks(outcomes=[SubmitAnswer(SubmitOutcome.RUN_CONFLICT)]))
    await scheduler.register()
    run = await scheduler.run()
    del scheduler.stores.data.flows["f"]
    (state,) = await scheduler.hand_over([run])
    assert state.reason == "the node task manager refused it: FLOW_DELETING"


def test_tries_come_less_often_with_age() -> None:
    assert [retry_after(age) for age in (0, 900, 1000, 5000, 60_000)] == [1000, 1000, 1000, 5000, 30_000]
    assert retry_after(0, 7000) == 7000
