"""Flows on record: registering, moving between statuses, listing and removing."""

from dataclasses import replace

import pytest
from msgspec import structs

from tests.servers import RedisServer
from tests.stores.scheduler.bench import MINUTE, Bench, request_of, shape
from tests.stores.scheduler.ticks import running, tick
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import STOP, StopRequest
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_record import FlowOutline, FlowStop, RegisterOutcome, StatusOutcome
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.server.partitions import partition_of


async def test_new_flow_has_status_registered_and_no_cycles(bench: Bench) -> None:
    assert await bench.register(user_id="ada") == (RegisterOutcome.CREATED, 1)
    flow = await bench.flow()
    assert (flow.flow_id, flow.user_id, flow.status) == ("f", "ada", FlowStatus.REGISTERED)
    assert (flow.last_cycle, flow.next_execution_ms, flow.running_cycles) == (-1, 0, 0)
    assert flow.created_ms == flow.updated_ms == bench.now
    assert flow.labels == (("team", "a"),)
    assert (flow.schedule.interval_ms, flow.overlap, flow.keep_cycles) == (MINUTE, OverlapPolicy.ALLOW, 100)
    assert flow.config_json == '{"interval":60}'


async def test_flow_without_user_belongs_to_default(bench: Bench) -> None:
    await bench.register()
    assert (await bench.flow()).user_id == "default"


async def test_registering_the_same_digest_changes_nothing(bench: Bench) -> None:
    await bench.register()
    before = await bench.flow()
    bench.clock.advance(1000)
    assert await bench.register() == (RegisterOutcome.SAME, 1)
    assert await bench.flow() == before


async def test_a_new_revision_keeps_cycles_creation_time_and_status(bench: Bench) -> None:
    await bench.register(user_id="ada")
    await bench.begun()
    await bench.change_status(FlowStatus.RUNNING)
    before = await bench.flow()
    bench.clock.advance(1000)
    assert await bench.register(digest="d2", config_json="{}") == (RegisterOutcome.CHANGED, 2)
    after = await bench.flow()
    assert after == replace(before, revision=2, digest="d2", config_json="{}", updated_ms=bench.now)
    assert after.etag != before.etag


async def test_a_new_interval_of_a_running_flow_reaches_the_outbox(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING)
    before = await bench.flow()
    await bench.stores.outbox.settle("f", before.schedule_epoch)
    bench.clock.advance(10)
    await bench.register(digest="d2", schedule=ScheduleDefinition(1000))
    after = await bench.flow()
    assert after.schedule_epoch > before.schedule_epoch
    assert after.anchor_ms == after.next_execution_ms == before.next_execution_ms
    assert (await bench.stores.outbox.check([partition_of("f")], 10))[partition_of("f")].due == ("f",)


async def test_definitions_of_earlier_revisions_stay_readable(bench: Bench) -> None:
    await bench.register(config_json="one")
    first = await bench.begun()
    await bench.register(config_json="two", digest="d2")
    assert await bench.stores.flows.definition("f", 1) == "one"
    assert await bench.stores.flows.definition("f", 2) == "two"
    assert await bench.stores.flows.definition("f", 3) is None
    await bench.end(first)
    await bench.register(config_json="three", digest="d3")
    assert await bench.stores.flows.definition("f", 2) == "two"
    assert await bench.stores.flows.definition("f", 3) == "three"
    assert await bench.stores.flows.definition("none", 1) is None


async def test_repeated_request_changes_nothing_and_another_payload_is_refused(bench: Bench) -> None:
    request = request_of("r1", "one")
    await bench.register(request=request)
    await bench.register(digest="d2")
    assert await bench.register(request=request) == (RegisterOutcome.REPEATED, 2)
    assert await bench.register(request=request_of("r1", "two")) == (RegisterOutcome.REUSED, 0)
    assert await bench.register(digest="d3", request=request_of("r1", "two", "eve")) == (RegisterOutcome.CHANGED, 3)


async def test_unknown_flows_are_none(bench: Bench) -> None:
    await bench.register("a")
    found = await bench.stores.flows.find(["x", "a", "y"])
    assert [flow and flow.flow_id for flow in found] == [None, "a", None]
    assert await bench.stores.flows.find([]) == []


async def test_ids_are_listed_in_order_over_all_partitions(bench: Bench) -> None:
    every = [f"flow-{number:02}" for number in range(40)]
    for flow_id in reversed(every):
        await bench.register(flow_id)
    assert len({partition_of(flow_id) for flow_id in every}) > 8
    assert await bench.stores.flows.list_ids("", 100) == every
    assert await bench.stores.flows.list_ids("flow-07", 3) == every[8:11]
    assert await bench.stores.flows.list_ids("flow-39", 3) == []


async def test_outlines_are_read_in_order_over_all_partitions(bench: Bench) -> None:
    every = [f"flow-{number:03}" for number in range(300)]
    for flow_id in reversed(every):
        await bench.register(flow_id)
    seen: list[str] = []
    after = ""
    while after or not seen:
        outlines, after = await bench.stores.flows.outlines(after, 40)
        assert 0 < len(outlines) <= 40
        seen += [each.flow_id for each in outlines]
    assert seen == every
    assert [each.flow_id for each in (await bench.stores.flows.outlines("flow-298", 9))[0]] == ["flow-299"]
    assert await bench.stores.flows.outlines("flow-299", 9) == ([], "")


async def test_outlines_miss_no_flow_of_a_partition_that_has_most_of_the_next(bench: Bench) -> None:
    in_one = [name for name in (f"a-{number:04}" for number in range(600)) if partition_of(name) == 0][:30]
    every = [*in_one, *(f"b-{number}" for number in range(5))]
    for flow_id in every:
        await bench.register(flow_id)
    seen: list[str] = []
    after = ""
    while after or not seen:
        outlines, after = await bench.stores.flows.outlines(after, 40)
        seen += [each.flow_id for each in outlines]
    assert seen == every


async def test_outline_says_what_lists_choose_by(bench: Bench) -> None:
    await bench.register()
    flow = await bench.flow()
    size = len(flow.config_json) + len(flow.structure_json)
    expected = FlowOutline("f", flow.user_id, flow.status, flow.labels, flow.created_ms, size)
    assert await bench.stores.flows.outlines("", 10) == ([expected], "")


async def test_starting_sets_the_first_planned_time_and_fills_the_outbox(bench: Bench) -> None:
    await bench.register()
    before = await bench.flow()
    bench.clock.advance(7)
    answer = await bench.change_status(FlowStatus.RUNNING)
    assert (answer.outcome, answer.found, answer.stopping) == (StatusOutcome.CHANGED, FlowStatus.REGISTERED, ())
    flow = await bench.flow()
    assert flow.status is FlowStatus.RUNNING
    assert flow.anchor_ms == flow.next_execution_ms == bench.now
    assert flow.schedule_epoch > before.schedule_epoch
    assert (await bench.stores.outbox.check([partition_of("f")], 10))[partition_of("f")].due == ("f",)


@pytest.mark.parametrize("status", [FlowStatus.STOPPED, FlowStatus.PAUSED])
async def test_stopped_or_paused_flow_keeps_its_grid(bench: Bench, status: FlowStatus) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING)
    started = bench.now
    bench.clock.advance(7)
    await bench.change_status(status)
    flow = await bench.flow()
    assert (flow.next_execution_ms, flow.anchor_ms) == (0, started)


async def test_starting_may_name_the_first_planned_time(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING, start_at_ms=bench.now + 5000)
    assert (await bench.flow()).anchor_ms == bench.now + 5000


async def test_starting_a_running_flow_changes_nothing(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING)
    before = await bench.flow()
    bench.clock.advance(1000)
    assert (await bench.change_status(FlowStatus.RUNNING)).outcome is StatusOutcome.UNCHANGED
    assert await bench.flow() == before


async def test_unknown_flow_and_forbidden_transition_are_refused(bench: Bench) -> None:
    assert (await bench.change_status(FlowStatus.RUNNING)).outcome is StatusOutcome.NOT_FOUND
    await bench.register()
    await bench.change_status(FlowStatus.DELETING)
    answer = await bench.change_status(FlowStatus.RUNNING)
    assert (answer.outcome, answer.found) == (StatusOutcome.REFUSED, FlowStatus.DELETING)
    assert await bench.register() == (RegisterOutcome.DELETING, 0)


async def test_stopping_marks_open_runs_in_the_same_step(bench: Bench) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING)
    first, second = await bench.begun(), await bench.begun()
    await bench.end(first)
    bench.clock.advance(50)
    answer = await bench.change_status(FlowStatus.STOPPED, by="ada", reason="enough")
    assert answer.stopping == (second.name,)
    stopped = await bench.state(second.name)
    assert stopped.stop is not None
    assert (stopped.stop.by, stopped.stop.reason, stopped.stop.at_ms) == ("ada", "enough", bench.now)
    assert stopped.version == second.version + 1
    assert (await bench.stores.open_runs.check([partition_of("f")], 9))[partition_of("f")].due == (second.name,)
    assert (await bench.log_lines(1))[-1] == "Stopping: enough"
    flow = await bench.flow()
    assert (flow.status, flow.next_execution_ms) == (FlowStatus.STOPPED, 0)


async def test_runs_of_a_flow_that_was_stopped_without_a_reason_say_that_it_was(bench: Bench) -> None:
    await bench.register()
    state = await bench.begun()
    await bench.change_status(FlowStatus.STOPPED, by="ada")
    assert await bench.log_lines(0) == ["Starting cycle 0", "Stopping: the flow was stopped"]
    stop, of_flow = (await bench.state(state.name)).stop, (await bench.flow()).stop
    assert stop is not None
    assert of_flow is not None
    assert (stop.reason, of_flow.reason) == ("the flow was stopped", "")


async def test_stopping_again_marks_only_runs_begun_since(bench: Bench) -> None:
    await bench.register()
    first = await bench.begun()
    await bench.change_status(FlowStatus.STOPPED, reason="one")
    epoch = (await bench.flow()).schedule_epoch
    second = await bench.begun()
    answer = await bench.change_status(FlowStatus.STOPPED, reason="two")
    assert (answer.outcome, answer.stopping) == (StatusOutcome.UNCHANGED, (second.name,))
    assert (await bench.flow()).schedule_epoch == epoch
    marked = [(await bench.state(state.name)).stop for state in (first, second)]
    assert [stop and stop.reason for stop in marked] == ["one", "two"]


async def test_cycle_keeps_its_first_stop_request(bench: Bench) -> None:
    due = await running(bench, overlap=OverlapPolicy.CANCEL_RUNNING)
    state = await tick(bench, due)
    assert state is not None
    stop = StopRequest("ann", "wrong prices", bench.now, timeout=True)
    await bench.write(structs.replace(state, stop=stop), {STOP})
    bench.clock.advance(MINUTE)
    assert await tick(bench, bench.now) is None
    answer = await bench.change_status(FlowStatus.STOPPED, by="bob", reason="enough")
    assert answer.stopping == ()
    assert (await bench.state(state.name)).stop == stop


async def test_flow_keeps_its_first_stop_until_it_is_started(bench: Bench) -> None:
    await bench.register()
    assert (await bench.flow()).stop is None
    await bench.change_status(FlowStatus.STOPPED, by="ada", reason="enough")
    first = FlowStop("ada", "enough", bench.now)
    bench.clock.advance(50)
    await bench.change_status(FlowStatus.STOPPED, by="bob", reason="me too")
    assert (await bench.flow()).stop == first
    await bench.change_status(FlowStatus.RUNNING)
    assert (await bench.flow()).stop is None


async def test_stopping_marks_more_runs_than_one_script_call_can(bench: Bench) -> None:
    await bench.register()
    requests = [bench.request() for _ in range(600)]
    await bench.stores.cycles.begin(requests)
    answer = await bench.change_status(FlowStatus.STOPPED)
    assert sorted(run.cycle for run in answer.stopping) == list(range(600))


async def test_outbox_keeps_a_flow_until_its_latest_epoch_is_settled(bench: Bench) -> None:
    await bench.register()
    partition = partition_of("f")
    await bench.change_status(FlowStatus.RUNNING)
    old = (await bench.flow()).schedule_epoch
    await bench.change_status(FlowStatus.STOPPED)
    assert not await bench.stores.outbox.settle("f", old)
    await bench.stores.outbox.postpone("f", 500)
    check = (await bench.stores.outbox.check([partition], 9))[partition]
    assert (check.due, check.next_ms) == ((), bench.now + 500)
    bench.clock.advance(500)
    assert (await bench.stores.outbox.check([partition], 9))[partition].due == ("f",)
    assert await bench.stores.outbox.settle("f", (await bench.flow()).schedule_epoch)
    check = (await bench.stores.outbox.check([partition], 9))[partition]
    assert (check.due, check.next_ms) == ((), None)
    await bench.stores.outbox.postpone("f", 500)
    assert (await bench.stores.outbox.check([partition], 9))[partition].next_ms is None


async def test_schedule_epoch_can_be_raised(bench: Bench) -> None:
    await bench.register()
    before = (await bench.flow()).schedule_epoch
    assert await bench.stores.flows.raise_schedule_epoch("f") == before + 1
    assert (await bench.flow()).schedule_epoch == before + 1
    assert await bench.stores.flows.raise_schedule_epoch("none") == 0


async def test_only_a_flow_being_deleted_is_removed(bench: Bench) -> None:
    await bench.register()
    assert await bench.stores.flows.remove_step("f"), "it has been registered again, so nothing is left to remove"
    assert (await bench.flow()).flow_id == "f"
    assert await bench.stores.flows.remove_step("none")


async def test_removal_begins_with_runs_that_have_ended(bench: Bench) -> None:
    await bench.register()
    still_open = await bench.begun()
    ended = await bench.begun()
    await bench.end(ended)
    await bench.change_status(FlowStatus.DELETING)
    assert not await bench.stores.flows.remove_step("f", 1)
    found = await bench.stores.states.load_many([still_open.name, ended.name])
    assert [state is not None for state in found] == [True, False]


async def test_removal_takes_bounded_steps_and_leaves_only_a_tombstone(
    bench: Bench, server: RedisServer | None
) -> None:
    await bench.register(request=request_of("register"))
    await bench.change_status(FlowStatus.RUNNING)
    for number in range(25):
        planned = await bench.scheduled_request(bench.now + number * MINUTE, request=request_of(f"run-{number}"))
        state = await bench.begun(planned)
        if number % 2:
            await bench.end(state, log="over")
    await bench.register(digest="d2")
    assert await bench.remove(cycles=10) == 3
    assert await bench.stores.flows.find(["f"]) == [None]
    assert await bench.stores.flows.list_ids("", 10) == []
    assert await bench.stores.cycles.newest("f", None, 10) == []
    partition = partition_of("f")
    assert (await bench.stores.open_runs.check([partition], 9))[partition].next_ms is None
    assert (await bench.stores.outbox.check([partition], 9))[partition].next_ms is None
    if server is not None:
        assert await server.keys() == [f"trading_flow:{{f{partition}}}:tombstone:f"]


async def test_late_writes_do_not_recreate_a_removed_flow(bench: Bench, server: RedisServer | None) -> None:
    await bench.register()
    state = await bench.begun()
    await bench.remove()
    assert (await bench.write_reason(state, "late")).outcome == "missing"
    assert (await bench.end(state, log="late")).outcome == "missing"
    assert (await bench.begin()).outcome is BeginOutcome.NOT_FOUND
    assert (await bench.change_status(FlowStatus.STOPPED)).outcome is StatusOutcome.NOT_FOUND
    await bench.stores.open_runs.postpone({state.name: 100})
    await bench.stores.outbox.postpone("f", 100)
    assert await bench.stores.outbox.settle("f", 1)
    if server is not None:
        assert len(await server.keys()) == 1


async def test_flow_registered_again_begins_at_cycle_0_with_a_higher_epoch(bench: Bench) -> None:
    await bench.register()
    old = await bench.begun()
    for _ in range(3):
        await bench.stores.flows.raise_schedule_epoch("f")
    await bench.change_status(FlowStatus.DELETING)
    before = (await bench.flow()).schedule_epoch
    await bench.remove()
    assert await bench.register() == (RegisterOutcome.CREATED, 1)
    assert (await bench.flow()).schedule_epoch > before
    new = await bench.begun(bench.request(shape=shape()))
    assert new.name == old.name == RunName("f", 0)
    assert (await bench.write_reason(old, "of the old one")).outcome == "missing"


async def test_owner_only_registration_leaves_another_users_flow_unchanged(bench: Bench) -> None:
    assert await bench.stores.flows.owners(["f", "g"]) == [None, None]
    assert await bench.register(user_id="ann", owner_only=True) == (RegisterOutcome.CREATED, 1)
    before = await bench.flow()
    refused = await bench.register(user_id="bob", digest="d2", owner_only=True)
    assert refused == (RegisterOutcome.NOT_OWNER, 0)
    assert await bench.flow() == before
    assert await bench.register(user_id="ann", digest="d2", owner_only=True) == (RegisterOutcome.CHANGED, 2)
    assert await bench.stores.flows.owners(["g", "f"]) == [None, "ann"]
