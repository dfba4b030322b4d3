"""Beginning cycles: numbers, overlap, idempotence per planned time and request, fencing."""

from msgspec import structs

from tests.servers import RedisServer
from tests.stores.scheduler.bench import CHECK_IN, MINUTE, Bench, names, redis_stores, request_of, shape
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import STOP, ChainState, CycleOrigin, StopRequest, UpdateOutcome
from tradewind.scheduler.domain.cycle_outline import CycleOutline
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.log_line import LogLevel, LogText
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.stores.keys import Keys
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import partition_of


async def test_the_first_cycle_is_number_0_at_version_1(bench: Bench) -> None:
    await bench.register()
    request = bench.request(
        shape=shape(nodes=3, timeout_ms=MINUTE, failure_policy=FailurePolicy.CONTINUE, user_id="ada"),
        inputs_json='{"a":1}',
        traceparent="00-1-2-01",
    )
    answer = await bench.begin(request)
    assert (answer.outcome, answer.run, answer.run_id) == (BeginOutcome.BEGUN, RunName("f", 0), request.run_id)
    state = await bench.state(RunName("f", 0))
    assert state == answer.state
    assert (state.version, state.status, state.components) == (1, CycleStatus.RUNNING, {})
    facts = state.facts
    assert (facts.start_ms, facts.planned_ms, facts.deadline_ms) == (bench.now, bench.now, bench.now + MINUTE)
    assert (facts.inputs_json, facts.traceparent, facts.user_id) == ('{"a":1}', "00-1-2-01", "ada")
    assert (facts.origin, facts.failure_policy) == (CycleOrigin.RUN_FLOW, FailurePolicy.CONTINUE)
    assert (facts.node_count, facts.component_count, facts.revision) == (3, 2, 1)
    assert await bench.log_lines(0) == ["Starting cycle 0"]
    assert (await bench.flow()).last_cycle == 0
    assert (await bench.flow()).running_cycles == 1


async def test_cycle_numbers_rise_and_are_never_reused(bench: Bench) -> None:
    await bench.register()
    states = [await bench.begun() for _ in range(3)]
    assert names(states) == [0, 1, 2]
    for state in states:
        await bench.end(state)
    assert names([await bench.begun()]) == [3]
    assert names(await bench.stores.cycles.newest("f", None, 2)) == [3, 2]
    assert names(await bench.stores.cycles.newest("f", RunName("f", 2), 9)) == [1, 0]
    assert await bench.stores.cycles.latest_run("f", 2) == RunName("f", 2)
    assert await bench.stores.cycles.latest_run("f", 9) is None
    assert await bench.stores.cycles.newest("none", None, 9) == []


async def test_runs_are_outlined_in_the_order_in_which_they_are_read(bench: Bench) -> None:
    await bench.register()
    ended, stopping, running = [await bench.begun() for _ in range(3)]
    await bench.end(ended)
    await bench.write(structs.replace(stopping, stop=StopRequest("ann", "enough", bench.now)), {STOP})
    outlines = await bench.stores.cycles.outlines("f", None, 9)
    assert outlines == [
        CycleOutline(running.name, CycleStatus.RUNNING, running.facts.start_ms),
        CycleOutline(stopping.name, CycleStatus.RUNNING, stopping.facts.start_ms, "ann"),
        CycleOutline(ended.name, CycleStatus.COMPLETED, ended.facts.start_ms),
    ]
    assert outlines == [state.outline for state in await bench.stores.cycles.newest("f", None, 9)]
    assert await bench.stores.cycles.outlines("f", running.name, 1) == outlines[1:2]
    assert await bench.stores.cycles.outlines("none", None, 9) == []


async def test_newest_open_run_is_found_below_another(bench: Bench) -> None:
    await bench.register()
    states = [await bench.begun() for _ in range(5)]
    stop = StopRequest("ann", "enough", bench.now)
    await bench.write(structs.replace(states[3], stop=stop), {STOP})
    for place in (0, 2, 4):
        await bench.end(states[place])
    cycles, found = bench.stores.cycles, []
    below = RunName("f", 9)
    while run := await cycles.newest_open("f", below):
        found.append(below := run)
    assert found == [RunName("f", 3), RunName("f", 1)]
    assert await cycles.newest_open("none", RunName("none", 9)) is None


async def test_requests_in_one_batch_are_judged_separately(bench: Bench) -> None:
    twins = [name for name in (f"flow{n}" for n in range(200)) if partition_of(name) == 3][:3]
    for flow_id in twins[:2]:
        await bench.register(flow_id, overlap=OverlapPolicy.SKIP)
    requests = [bench.request(twins[0]), bench.request(twins[1]), bench.request(twins[0]), bench.request(twins[2])]
    answers = await bench.stores.cycles.begin(requests)
    assert [answer.outcome.value for answer in answers] == ["begun", "begun", "overlap", "not_found"]
    assert answers[2].run == RunName(twins[0], 0)


async def test_batch_over_all_partitions_is_answered_in_order(bench: Bench) -> None:
    flows = [f"flow{n}" for n in range(30)]
    for flow_id in flows:
        await bench.register(flow_id)
    answers = await bench.stores.cycles.begin([bench.request(flow_id) for _ in range(40) for flow_id in flows])
    assert [answer.run for answer in answers] == [RunName(flow_id, n) for n in range(40) for flow_id in flows]
    assert await bench.stores.cycles.begin([]) == []


async def test_overlap_skip_refuses_a_second_cycle(bench: Bench) -> None:
    await bench.register(overlap=OverlapPolicy.SKIP)
    first = await bench.begun()
    answer = await bench.begin()
    assert (answer.outcome, answer.run) == (BeginOutcome.OVERLAP, first.name)
    await bench.end(first)
    assert (await bench.begin()).outcome is BeginOutcome.BEGUN


async def test_overlap_allow_runs_both_cycles(bench: Bench) -> None:
    await bench.register(overlap=OverlapPolicy.ALLOW)
    await bench.begun()
    await bench.begun()
    assert (await bench.flow()).running_cycles == 2


async def test_a_scheduled_cycle_begins_only_in_a_running_flow(bench: Bench) -> None:
    await bench.register()
    assert (await bench.begin(await bench.scheduled_request(bench.now))).outcome is BeginOutcome.NOT_RUNNING
    await bench.change_status(FlowStatus.RUNNING)
    assert (await bench.begin(await bench.scheduled_request(bench.now))).outcome is BeginOutcome.BEGUN
    await bench.change_status(FlowStatus.STOPPED)
    assert (await bench.begin(await bench.scheduled_request(bench.now + MINUTE))).outcome is BeginOutcome.NOT_RUNNING
    assert (await bench.begin()).outcome is BeginOutcome.BEGUN


async def test_trigger_of_an_older_schedule_begins_no_cycle(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING)
    old = await bench.scheduled_request(bench.now)
    await bench.change_status(FlowStatus.STOPPED)
    await bench.change_status(FlowStatus.RUNNING)
    assert (await bench.begin(old)).outcome is BeginOutcome.STALE_EPOCH


async def test_repeated_planned_time_gets_the_first_answer(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING)
    first = await bench.begin(await bench.scheduled_request(bench.now))
    again = await bench.begin(await bench.scheduled_request(bench.now))
    assert first.run is not None
    assert (again.outcome, again.run, again.run_id) == (BeginOutcome.DUPLICATE, first.run, first.run_id)
    assert again.next_ms == first.next_ms == bench.now + MINUTE
    await bench.end(await bench.state(first.run))
    assert (await bench.begin(await bench.scheduled_request(bench.now))).outcome is BeginOutcome.DUPLICATE
    assert (await bench.flow()).last_cycle == 0


async def test_cycle_recorded_early_starts_and_ends_no_sooner_than_planned(bench: Bench) -> None:
    await bench.register(overlap=OverlapPolicy.SKIP)
    await bench.change_status(FlowStatus.RUNNING)
    due = bench.now + 400
    answer = await bench.begin(await bench.scheduled_request(due, now_ms=due))
    assert (answer.outcome, answer.next_ms) == (BeginOutcome.BEGUN, due + MINUTE)
    assert answer.state is not None
    assert (answer.state.facts.start_ms, answer.state.facts.planned_ms) == (due, due)
    await bench.end(answer.state)
    assert (await bench.state(answer.state.name)).end_ms == due


async def test_overlap_with_an_early_request_is_decided_when_it_is_due(bench: Bench) -> None:
    await bench.register(overlap=OverlapPolicy.SKIP)
    await bench.change_status(FlowStatus.RUNNING)
    first = await bench.begun()
    before = await bench.flow()
    due = bench.now + 400
    assert (await bench.begin(await bench.scheduled_request(due, now_ms=due))).outcome is BeginOutcome.EARLY
    assert (await bench.flow(), await bench.firings()) == (before, [])
    await bench.end(first)
    bench.clock.advance(400)
    assert (await bench.begin(await bench.scheduled_request(due))).outcome is BeginOutcome.BEGUN


async def test_a_skipped_planned_time_stays_skipped(bench: Bench) -> None:
    await bench.register(overlap=OverlapPolicy.SKIP)
    await bench.change_status(FlowStatus.RUNNING)
    first = await bench.begun()
    answer = await bench.begin(await bench.scheduled_request(bench.now))
    assert (answer.outcome, answer.next_ms) == (BeginOutcome.SETTLED, bench.now + MINUTE)
    assert (await bench.flow()).next_execution_ms == bench.now + MINUTE
    await bench.end(first)
    assert (await bench.begin(await bench.scheduled_request(bench.now))).outcome is BeginOutcome.SETTLED
    assert await bench.firings() == [(bench.now, "skipped", -1, 1, "cycle 0 was running")]


async def test_outdated_revision_begins_no_cycle(bench: Bench) -> None:
    await bench.register()
    await bench.register(digest="d2")
    answer = await bench.begin(bench.request(shape=shape(revision=1)))
    assert (answer.outcome, answer.revision) == (BeginOutcome.REVISION_CHANGED, 2)
    assert (await bench.begin(bench.request(shape=shape(revision=2)))).outcome is BeginOutcome.BEGUN


async def test_flow_being_deleted_begins_no_cycle(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.DELETING)
    assert (await bench.begin()).outcome is BeginOutcome.DELETING


async def test_a_repeated_request_gets_the_first_cycle(bench: Bench) -> None:
    await bench.register(overlap=OverlapPolicy.SKIP)
    first = await bench.begin(bench.request(request=request_of("r")))
    again = await bench.begin(bench.request(request=request_of("r")))
    assert (again.outcome, again.run, again.run_id) == (BeginOutcome.DUPLICATE, first.run, first.run_id)
    reused = await bench.begin(bench.request(request=request_of("r", "other payload")))
    assert reused.outcome is BeginOutcome.REUSED
    assert (await bench.flow()).last_cycle == 0


async def test_a_refused_request_may_be_repeated(bench: Bench) -> None:
    await bench.register(overlap=OverlapPolicy.SKIP)
    first = await bench.begun()
    assert (await bench.begin(bench.request(request=request_of("r")))).outcome is BeginOutcome.OVERLAP
    await bench.end(first)
    assert (await bench.begin(bench.request(request=request_of("r")))).outcome is BeginOutcome.BEGUN


async def test_run_with_a_conflicting_name_is_renumbered(bench: Bench) -> None:
    await bench.register(overlap=OverlapPolicy.SKIP)
    await bench.change_status(FlowStatus.RUNNING)
    request = await bench.scheduled_request(bench.now, request=request_of("r"))
    first = await bench.begun(request)
    moved = await bench.scheduled_request(bench.now, run_id=request.run_id, replaces=first.name.cycle, at_least=7)
    second = await bench.begun(moved)
    assert second.name == RunName("f", 7)
    assert await bench.stores.states.load(first.name) is None
    assert names(await bench.stores.cycles.newest("f", None, 9)) == [7]
    assert (await bench.flow()).running_cycles == 1
    # The answer may be lost, and the run renumbered again.
    assert (await bench.begin(moved)).outcome is BeginOutcome.NOT_FOUND
    again = await bench.begin(await bench.scheduled_request(bench.now))
    assert (again.outcome, again.run) == (BeginOutcome.DUPLICATE, second.name)
    assert (await bench.begin(bench.request(request=request_of("r")))).run == second.name


async def test_renumbered_run_is_asked_to_stop_as_it_was_before(bench: Bench) -> None:
    await bench.register()
    first = await bench.begun()
    stop = StopRequest("ada", "not today", bench.now, request_id="r")
    assert (await bench.write(structs.replace(first, stop=stop), {STOP})).ok
    second = await bench.begun(bench.request(run_id=first.facts.run_id, replaces=first.name.cycle))
    assert (second.name.cycle, second.version, second.stop) == (1, 1, stop)
    assert await bench.state(second.name) == second
    partition = partition_of("f")
    assert (await bench.stores.open_runs.check([partition], 9))[partition].due == (second.name,)


async def test_renumbering_replaces_only_a_run_with_the_same_id(bench: Bench) -> None:
    await bench.register()
    first = await bench.begun()
    assert (await bench.begin(bench.request(replaces=first.name.cycle))).outcome is BeginOutcome.NOT_FOUND
    assert (await bench.state(first.name)).facts.run_id == first.facts.run_id


async def test_an_overtaken_owner_begins_and_writes_nothing(bench: Bench) -> None:
    await bench.register()
    partition = partition_of("f")
    old = await bench.stores.partitions.acquire(partition)
    assert (await bench.begin(epoch=old)).outcome is BeginOutcome.BEGUN
    state = await bench.state(RunName("f", 0))
    new = await bench.stores.partitions.acquire(partition)
    assert (await bench.begin(epoch=old)).outcome is BeginOutcome.OVERTAKEN
    assert (await bench.end(state, epoch=old)).outcome is UpdateOutcome.OVERTAKEN
    assert (await bench.flow()).last_cycle == 0
    assert (await bench.end(state, epoch=new)).ok


async def test_only_requests_of_a_lost_partition_are_refused(bench: Bench) -> None:
    flows = [f"flow{n}" for n in range(6)]
    for flow_id in flows:
        await bench.register(flow_id)
    lost = partition_of(flows[2])
    epochs = {partition: await bench.stores.partitions.acquire(partition) for partition in map(partition_of, flows)}
    await bench.stores.partitions.acquire(lost)
    answers = await bench.stores.cycles.begin([bench.request(flow_id) for flow_id in flows], epochs)
    expected = [BeginOutcome.OVERTAKEN if partition_of(flow_id) == lost else BeginOutcome.BEGUN for flow_id in flows]
    assert [answer.outcome for answer in answers] == expected
    assert {BeginOutcome.OVERTAKEN, BeginOutcome.BEGUN} == set(expected)


async def test_open_run_is_due_for_checks_until_it_ends(bench: Bench) -> None:
    await bench.register()
    partition = partition_of("f")
    state = await bench.begun()
    check = (await bench.stores.open_runs.check([partition], 9))[partition]
    assert (check.due, check.next_ms) == ((), bench.now + CHECK_IN)
    bench.clock.advance(CHECK_IN)
    assert (await bench.stores.open_runs.check([partition], 9))[partition].due == (state.name,)
    await bench.stores.open_runs.postpone({state.name: 100})
    assert (await bench.stores.open_runs.check([partition], 9))[partition].next_ms == bench.now + 100
    assert await bench.stores.open_runs.of_flow("f", 9) == [state.name]
    await bench.end(state)
    await bench.stores.open_runs.postpone({state.name: 100})
    check = (await bench.stores.open_runs.check([partition], 9))[partition]
    assert (check.due, check.next_ms) == ((), None)
    assert await bench.stores.open_runs.of_flow("f", 9) == []


async def test_running_run_is_not_forgotten(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    await bench.stores.open_runs.forget(state.name)
    partition = partition_of("f")
    assert (await bench.stores.open_runs.check([partition], 9))[partition].next_ms == bench.now + CHECK_IN
    assert (await bench.flow()).running_cycles == 1


async def test_run_whose_record_is_gone_is_forgotten(redis_server: RedisServer) -> None:
    clock = ManualClock()
    bench = Bench(redis_stores(redis_server, clock), clock)
    await bench.register()
    state = await bench.begun()
    await redis_server.connect().execute_command("DEL", Keys().run("f", state.name.cycle, 0))
    await bench.stores.open_runs.forget(state.name)
    partition = partition_of("f")
    assert (await bench.stores.open_runs.check([partition], 9))[partition].next_ms is None
    assert await bench.stores.open_runs.of_flow("f", 9) == []


async def test_forgetting_an_ended_run_keeps_it_among_the_cycles_of_its_flow(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    await bench.end(state)
    await bench.stores.open_runs.forget(state.name)
    assert [each.name for each in await bench.stores.cycles.newest("f", None, 9)] == [state.name]
    assert await bench.stores.cycles.latest_run("f", state.name.cycle) == state.name


async def test_check_returns_longest_due_runs_up_to_the_limit(bench: Bench) -> None:
    await bench.register()
    partition = partition_of("f")
    runs = []
    for _ in range(4):
        runs.append((await bench.begun()).name)
        bench.clock.advance(10)
    bench.clock.advance(CHECK_IN)
    check = (await bench.stores.open_runs.check([partition], 3))[partition]
    assert check.due == tuple(runs[:3])
    assert check.next_ms is not None
    assert check.next_ms <= bench.now


async def test_logs_are_kept_for_the_newest_hundred_cycles(bench: Bench) -> None:
    await bench.register()
    for number in range(102):
        state = await bench.begun()
        line = LogText(LogLevel.WARNING, f"line  {number} ü")
        await bench.stores.states.update_many(
            [RunUpdate(state, (), log=line), RunUpdate(at_next_version(state), (), log=line)]
        )
        if number != 3:
            await bench.end(at_next_version(at_next_version(state)))
    logs = bench.stores.logs
    assert [cycle for cycle in range(102) if await logs.read("f", cycle)] == list(range(2, 102))
    (first, last) = await logs.read("f", 101)
    assert (first.text, last.text) == ("line  101 ü", "line  101 ü")
    assert (first.level.value, first.source.value, first.at_ms) == ("WARNING", "scheduler", bench.now)
    assert first.log_id != last.log_id
    assert await logs.read("none", 0) == []


async def test_cycle_keeps_its_newest_thousand_log_lines(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    texts = [f"line {number}" for number in range(1005)]
    updates = []
    for text in texts:
        updates.append(RunUpdate(state, (), log=LogText(LogLevel.WARNING, text)))
        state = at_next_version(state)
    await bench.stores.states.update_many(updates)
    assert [line.text for line in await bench.stores.logs.read("f", 0)] == texts[5:]


async def test_logs_of_older_cycles_are_removed_even_if_few_cycles_have_logs(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    await bench.stores.states.update_many([RunUpdate(state, (), log=LogText(LogLevel.WARNING, "late"))])
    for _ in range(99):
        await bench.end(await bench.begun())
    assert await bench.log_lines(0) == ["Starting cycle 0", "late"]
    await bench.begun()
    assert await bench.log_lines(0) == ["Starting cycle 0"]
    assert await bench.log_lines(4) == ["Starting cycle 4", "Cycle 4 completed"]


def at_next_version(state: ChainState) -> ChainState:
    return structs.replace(state, version=state.version + 1)
