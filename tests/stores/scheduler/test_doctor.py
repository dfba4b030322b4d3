"""Each invariant is broken by hand, found and mended, and everything is well again."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from msgspec import structs

from tests.servers import RedisServer
from tests.stores.scheduler.bench import MINUTE, redis_stores, request_of
from tests.stores.scheduler.test_reruns import rerun
from tests.stores.scheduler.ticks import blocked
from tests.stores.scheduler.ward import BASE, Peers, Ward
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.bulk_job import BulkAction, BulkFilter, BulkJob
from tradewind.scheduler.domain.chain_state import SUBMITTED, ChainState, CycleOrigin
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.sub_flow import SubFlowWait
from tradewind.scheduler.stores.redis.ranks import OPEN
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import partition_of

FOREVER = 10**15
T = 1_699_999_980_000
"""A full minute before the clock of these tests."""
PARENT = Parent(RunName("above", 0), "r0", "sub", 1)


@pytest_asyncio.fixture
async def ward(embedded: RedisServer) -> AsyncIterator[Ward]:
    await embedded.flush()
    clock = ManualClock()
    yield Ward(redis_stores(embedded, clock), clock, admin=embedded.connect())
    await embedded.close_clients()


async def started(ward: Ward) -> None:
    """Set up a running flow that the trigger service knows."""
    await ward.register("f")
    await ward.change_status(FlowStatus.RUNNING)
    flow = await ward.flow()
    ward.peers.epochs["f"] = flow.schedule_epoch
    await ward.stores.outbox.settle("f", flow.schedule_epoch)


async def open_cycle(ward: Ward) -> ChainState:
    """Set up a cycle that runs."""
    await started(ward)
    return await ward.begun(structs.replace(ward.request(), run_id="r", request=request_of("r")))


async def ended_cycle(ward: Ward) -> None:
    """Set up a cycle that has ended and did not run for a node."""
    await ward.end(await open_cycle(ward))


async def open_rerun(ward: Ward) -> None:
    """Set up a cycle that has ended and is run again."""
    await ended_cycle(ward)
    await rerun(ward, await ward.state(RunName("f", 0)))


async def open_child(ward: Ward) -> ChainState:
    """Set up a cycle that runs for a node of another flow; its own flow has no other cycles."""
    await started(ward)
    return await ward.begun(structs.replace(ward.request(), run_id="child", origin=CycleOrigin.SUB_FLOW, parent=PARENT))


async def ended_child(ward: Ward) -> None:
    """Set up such a cycle that has ended, of whose end the node has not heard yet."""
    await ward.end(await open_child(ward))


async def backfill_with_a_running_cycle(ward: Ward) -> ChainState:
    """Set up a backfill of three times, with one cycle running."""
    await started(ward)
    backfill_id = await ward.backfill(T - 3 * MINUTE, T)
    return await ward.begun(ward.backfill_request((await ward.find_backfill(backfill_id)).steps()[0]))


async def backfill_with_one_ended_cycle(ward: Ward) -> None:
    """Set up a backfill of three times, with one cycle ended and no other begun."""
    await ward.end(await backfill_with_a_running_cycle(ward))


async def ended_backfill(ward: Ward) -> None:
    """Set up a backfill that has ended."""
    await started(ward)
    backfill_id = await ward.backfill(T - 3 * MINUTE, T)
    await ward.stores.backfills.cancel("f", backfill_id, "enough")


BROKEN: list[tuple[Callable[[Ward], Awaitable[object]], tuple[Any, ...], str, str]] = [
    (started, ("ZADD", "flows", 0, "gone"), "index-without-record", "flows gone"),
    (started, ("ZADD", "queued", 0, "gone"), "index-without-record", "queued gone"),
    (started, ("ZADD", "flow:f:queued", 5, 5), "queue-forgotten", "f"),
    (started, ("ZADD", "open", FOREVER, "gone:0:0"), "orphaned-chain-state", "gone:0:0"),
    (started, ("ZADD", "open", FOREVER, "f:7:0"), "open-without-record", "f:7:0"),
    (started, ("ZADD", "flow:f:cycles", OPEN + 7 * 1024, "7:0"), "open-without-record", "f:7:0"),
    (open_cycle, ("ZREM", "open", "f:0:0"), "open-run-forgotten", "f:0:0"),
    (open_cycle, ("ZADD", "flow:f:cycles", 0, "0:0"), "open-run-forgotten", "f:0:0"),
    (ended_cycle, ("ZADD", "flow:f:cycles", OPEN, "0:0"), "open-without-record", "f:0:0"),
    (open_cycle, ("ZREM", "flow:f:cycles", "0:0"), "run-not-listed", "f:0:0"),
    (open_cycle, ("ZREM", "flows", "f"), "flow-not-listed", "f"),
    (open_cycle, ("PEXPIRE", "flow:f:cycle:0:0", FOREVER), "open-run-expires", "f:0:0"),
    (open_cycle, ("PERSIST", "request:default:f:r"), "no-time-to-live", "request:default:f:r"),
    (ended_cycle, ("PERSIST", "flow:f:cycle:0:0"), "no-time-to-live", "f:0:0"),
    (open_rerun, ("PEXPIRE", "flow:f:cycle:0:1", FOREVER), "open-run-expires", "f:0:1"),
    (ended_cycle, ("ZADD", "open", FOREVER, "f:0:0"), "open-without-record", "f:0:0"),
    (ended_cycle, ("ZREM", "flow:f:cycles", "0:0"), "run-not-listed", "f:0:0"),
    (backfill_with_a_running_cycle, ("ZREM", "backfills", "f:1"), "backfill-forgotten", "f:1"),
    (backfill_with_a_running_cycle, ("PEXPIRE", "flow:f:backfill:1", FOREVER), "open-backfill-expires", "f:1"),
    (backfill_with_a_running_cycle, ("ZREM", "flow:f:filling", "0:0"), "backfill-misses-run", "f:0:0"),
    (backfill_with_one_ended_cycle, ("ZADD", "flow:f:filling", 1, "0:0"), "backfill-counts-ended-run", "f:0:0"),
    (backfill_with_one_ended_cycle, ("ZADD", "flow:f:filling", 1, "7:0"), "backfill-counts-ended-run", "f:7:0"),
    (backfill_with_one_ended_cycle, ("HSET", "flow:f:backfill:1", "position", 0), "backfill-not-ended", "f:1"),
    (ended_backfill, ("PERSIST", "flow:f:backfill:1"), "no-time-to-live", "backfill f:1"),
    (ended_backfill, ("ZADD", "backfills", 5, "f:1"), "index-without-record", "backfills f:1"),
    (started, ("ZADD", "backfills", 5, "gone:1"), "index-without-record", "backfills gone:1"),
    (started, ("ZADD", "returns", 5, "f:7:0 r completed"), "index-without-record", "returns f:7:0 r completed"),
    (started, ("ZADD", "returns", 5, "rubbish"), "index-without-record", "returns rubbish"),
    (open_child, ("ZADD", "returns", 5, "f:0:0 child failed"), "index-without-record", "returns f:0:0 child failed"),
    (ended_child, ("ZADD", "returns", 5, "f:0:0 r failed"), "index-without-record", "returns f:0:0 r failed"),
    (ended_cycle, ("ZADD", "returns", 5, "f:0:0 r completed"), "index-without-record", "returns f:0:0 r completed"),
    (started, ("ZADD", "backfills", 5, "rubbish"), "index-without-record", "backfills rubbish"),
    (started, ("ZADD", "ends", 5, "rubbish"), "index-without-record", "ends rubbish"),
    (started, ("ZADD", "ends", 5, "f:0:0 r running"), "index-without-record", "ends f:0:0 r running"),
    (started, ("ZADD", "outbox", 5, b"\xff"), "index-without-record", "outbox ?"),
    (started, ("ZADD", "jobs_open", 5, "rubbish"), "index-without-record", "jobs_open rubbish"),
    (open_child, ("ZREM", "flow:f:filling", "0:0"), "sub-flow-in-the-way", "f:0:0"),
    (ended_child, ("ZADD", "flow:f:filling", 0, "0:0"), "index-without-record", "filling f:0:0"),
]


@pytest.mark.parametrize(
    ("begin", "command", "check", "subject"), BROKEN, ids=[f"{b[2]}-{b[1][0]}-{b[1][1]}" for b in BROKEN]
)
async def test_broken_invariant_is_found_and_mended(
    ward: Ward,
    begin: Callable[[Ward], Awaitable[object]],
    command: tuple[Any, ...],
    check: str,
    subject: str,
) -> None:
    await begin(ward)
    assert await ward.found() == []
    await ward.do(*command)
    assert (check, subject) in await ward.found()
    assert (check, subject, True) in [
        (each.check, each.subject, each.mended) for each in await ward.findings(mend=True)
    ]
    assert await ward.found() == []


async def test_planned_time_that_waits_is_tried_again_once_a_lost_run_in_its_way_is_taken_out(ward: Ward) -> None:
    first = await blocked(ward)
    await ward.do("DEL", f"flow:f:cycle:{first.name.cycle}:0")
    await ward.do("ZREM", "open", str(first.name))
    await ward.found(mend=True)
    assert await ward.stores.firings.waiting([partition_of("f")], 9) == ["f"]


async def test_planned_time_that_waits_is_tried_again_once_a_run_in_its_way_counts_for_a_node(ward: Ward) -> None:
    first = await blocked(ward)
    await ward.begun(structs.replace(ward.request(), run_id="child", origin=CycleOrigin.SUB_FLOW, parent=PARENT))
    await ward.do("ZREM", "flow:f:filling", "1:0")
    await ward.end(first)
    assert (await ward.begin(ward.queued_request())).outcome is BeginOutcome.OVERLAP
    assert await ward.stores.firings.waiting([partition_of("f")], 9) == []
    await ward.found(mend=True)
    assert await ward.stores.firings.waiting([partition_of("f")], 9) == ["f"]


async def test_forgotten_deletion_is_resumed(ward: Ward) -> None:
    await started(ward)
    await ward.change_status(FlowStatus.DELETING)
    assert await ward.found() == []
    await ward.do("ZREM", "outbox", "f")
    assert await ward.found() == [("deletion-forgotten", "f")]
    await ward.found(mend=True)
    assert (await ward.stores.outbox.check([partition_of("f")], 10))[partition_of("f")].due == ("f",)


@pytest.mark.parametrize("epoch", [None, 1, FOREVER])
async def test_running_flow_without_current_trigger_returns_to_the_outbox(ward: Ward, epoch: int | None) -> None:
    await started(ward)
    if epoch is None:
        del ward.peers.epochs["f"]
    else:
        ward.peers.epochs["f"] = epoch
    assert await ward.found() == [("running-without-trigger", "f")]
    await ward.found(mend=True)
    assert (await ward.stores.outbox.check([partition_of("f")], 10))[partition_of("f")].due == ("f",)
    # Work in progress is no finding.
    assert await ward.found() == []


async def test_trigger_changed_while_the_doctor_looks_is_no_finding(ward: Ward) -> None:
    @dataclass
    class Changing(Peers):
        async def epochs_of(self, flow_ids: Sequence[str]) -> Mapping[str, int]:
            return {flow_id: await ward.stores.flows.raise_schedule_epoch(flow_id) for flow_id in flow_ids}

    await started(ward)
    ward.peers = Changing()
    assert await ward.found() == []


async def test_flow_whose_trigger_stayed_silent_returns_to_the_outbox(ward: Ward) -> None:
    await started(ward)
    ward.clock.advance(119_000)
    assert await ward.found() == []
    ward.clock.advance(2_000)
    assert await ward.found() == [("trigger-silent", "f")]
    before = (await ward.flow()).schedule_epoch
    await ward.found(mend=True)
    assert (await ward.flow()).schedule_epoch > before
    assert (await ward.stores.outbox.check([partition_of("f")], 10))[partition_of("f")].due == ("f",)


async def test_submitted_run_unknown_to_the_node_task_manager_is_due_for_a_check(ward: Ward) -> None:
    state = await open_cycle(ward)
    assert await ward.found() == [], "not submitted yet"
    await ward.write(structs.replace(state, submitted_ms=ward.now), {SUBMITTED})
    ward.peers.known.add("f:0:0")
    assert await ward.found() == []
    ward.peers.known.clear()
    assert await ward.found() == [("run-unknown", "f:0:0")]
    await ward.found(mend=True)
    assert (await ward.stores.open_runs.check([partition_of("f")], 10))[partition_of("f")].due == (state.name,)


async def test_run_waiting_for_a_lost_sub_flow_end_is_due_for_a_check(ward: Ward) -> None:
    """`returns` has forgotten the end of a cycle that ran for a node of `above`."""
    child = await open_child(ward)
    await ward.register("above")
    above = await ward.begun(ward.request("above", run_id=PARENT.run_id))
    await ward.write(structs.replace(above, submitted_ms=ward.now), {SUBMITTED})
    ward.peers.known.add("above:0:0")
    ward.peers.waiting.append(SubFlowWait("sub", PARENT.run_id, 1, "f", child.name))
    assert await ward.found() == [], "it runs"
    await ward.end(child)
    assert await ward.found() == [], "its end is on its way"
    await ward.do("DEL", "returns")
    assert await ward.found() == [("end-not-returned", "above:0:0:sub")]
    await ward.found(mend=True)
    here = partition_of("above")
    assert (await ward.stores.open_runs.check([here], 10))[here].due == (above.name,)
    ward.peers.waiting.clear()
    assert await ward.found() == []


async def test_run_whose_flow_is_gone_expires(ward: Ward) -> None:
    await open_cycle(ward)
    await ward.do("DEL", "flow:f")
    assert ("orphaned-chain-state", "f:0:0") in await ward.found(mend=True)
    assert await ward.admin.pttl(f"{BASE}flow:f:cycle:0:0") > 0
    assert await ward.found() == []


async def test_run_whose_flow_is_gone_ends(ward: Ward) -> None:
    state = await open_cycle(ward)
    await ward.do("DEL", "flow:f")
    assert (await ward.end(state)).ok
    assert await ward.admin.exists(f"{BASE}flow:f") == 0


async def test_what_cannot_be_read_is_reported_and_the_rest_mended(ward: Ward) -> None:
    await started(ward)
    await ward.do("ZADD", "flow:f:cycles", 0, "gone")
    await ward.do("ZADD", "open", 0, "gone")
    await ward.do("ZADD", "flows", 0, "gone")
    await ward.do("ZADD", "flows", 0, b"\xff\xfe")
    await ward.do("SET", "flow:f:backfills", "text")
    assert sorted(await ward.found(mend=True)) == [
        ("index-without-record", "cycles f:gone"),
        ("index-without-record", "flows ??"),
        ("index-without-record", "flows gone"),
        ("index-without-record", "open gone"),
        ("unreadable", "flows f"),
        ("unreadable", f"{BASE}flow:f:backfills"),
    ]
    assert {check for check, _ in await ward.found()} == {"unreadable"}


async def submitted_cycle(ward: Ward) -> None:
    """Set up a cycle that runs and that the node task manager knows."""
    state = await open_cycle(ward)
    await ward.write(structs.replace(state, submitted_ms=ward.now), {SUBMITTED})
    ward.peers.known.add("f:0:0")


@pytest.mark.parametrize(
    ("command", "subjects"),
    [
        (("HSET", "flow:f:cycle:0:0", "facts", "[]"), ["run f:0:0"]),
        (("HDEL", "flow:f:cycle:0:0", "run_id"), ["run f:0:0"]),
        (("HSET", "flow:f:cycle:0:0", "component:0", "1,2,3,4,5,6"), ["run f:0:0"]),
        (("COPY", "open", f"{BASE}flow:f:cycle:0:0", "REPLACE"), ["run f:0:0"]),
        (("COPY", "flow:f", f"{BASE}flow:f:firings", "REPLACE"), [f"{BASE}flow:f:firings"]),
        (("COPY", "flows", f"{BASE}flow:f:history", "REPLACE"), [f"{BASE}flow:f:history"]),
        (("HDEL", "flow:f", "schedule_epoch"), ["flows f"]),
        (("HDEL", "flow:f", "status"), ["flows f"]),
        (("HDEL", "flow:f", "config"), ["flow f"]),
        (("COPY", "flow:f", f"{BASE}queued", "REPLACE"), [f"{BASE}queued"]),
        (("COPY", "flow:f", f"{BASE}backfills", "REPLACE"), [f"{BASE}backfills"]),
        (("COPY", "flow:f", f"{BASE}returns", "REPLACE"), [f"{BASE}returns"]),
        (("COPY", "flow:f", f"{BASE}ends", "REPLACE"), [f"{BASE}ends"]),
        (("COPY", "flow:f", f"{BASE}jobs_open", "REPLACE"), [f"{BASE}jobs_open"]),
        (("COPY", "flow:f", f"{BASE}job:f", "REPLACE"), ["jobs_open f"]),
        (("COPY", "flow:f", f"{BASE}flows", "REPLACE"), [f"{BASE}flows", "open f:0:0"]),
    ],
    ids=lambda value: f"{value[0]}-{value[1]}-{value[2]}" if isinstance(value, tuple) else None,
)
async def test_record_or_index_broken_by_hand_is_reported_alone(
    ward: Ward, command: tuple[Any, ...], subjects: list[str]
) -> None:
    await submitted_cycle(ward)
    wanted = BulkFilter(("f",), (), 0, ward.now, 7)
    await ward.stores.jobs.create(BulkJob("f", BulkAction.STOP, wanted, False, "ann", "", ward.now), "p")
    await ward.do("HSET", "flow:f", "next_execution", 1)
    await ward.do(*command)
    for mend in (True, True, False):
        found = {finding.subject for finding in await ward.findings(mend=mend) if finding.check == "unreadable"}
        assert found == set(subjects)


async def test_unavailable_services_cause_no_findings(ward: Ward) -> None:
    await submitted_cycle(ward)
    ward.peers.away = True
    assert await ward.found() == []


async def test_background_doctor_examines_only_owned_partitions(ward: Ward) -> None:
    await started(ward)
    await ward.do("ZADD", "flows", 0, "gone")
    assert [each.check for each in await ward.findings(everything=False)] == ["index-without-record"]


async def test_many_flows_are_examined_in_steps(ward: Ward) -> None:
    names = [f"f{at}" for at in range(3000)]
    same = [name for name in names if partition_of(name) == partition_of("f")][:150]
    for name in same:
        await ward.register(name)
    await ward.do("ZADD", "flows", 0, "zzz")
    doctor = ward.stores.doctor  # type: ignore[attr-defined]
    first = await doctor.examine(partition_of("f"), 0, "", 100, None, False)
    assert first.examined.at == f"1:{sorted(same)[99]}"
    assert await ward.found() == [("index-without-record", "flows zzz")]
