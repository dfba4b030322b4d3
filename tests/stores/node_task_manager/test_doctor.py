"""Each invariant is broken by hand, found and mended, and everything is well again."""

from typing import Any

import msgspec
import pytest

from tests.stores.node_task_manager.doctors import examined, findings
from tests.stores.node_task_manager.raw_keys import BASE, packed_state
from tests.stores.node_task_manager.shards import LIMITS, only_component, plan_of
from tests.stores.node_task_manager.wards import (
    PLAN,
    TASK,
    Break,
    Ward,
    check_mended,
    check_mended_without_invariants,
    queued,
    running,
)
from tradewind.node_task_manager.domain.component import ComponentStatus, RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.domain.waiting import Wait
from tradewind.node_task_manager.ports.events import ComponentEvent
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind


async def ended(ward: Ward) -> None:
    await ward.submit(plan_of("a"))
    (taken,) = await ward.take()
    assert await ward.complete(taken) == ""


BROKEN: list[tuple[Break, tuple[Any, ...], str, str]] = [
    (queued, ("ZREM", "ready:noop:default", TASK), "ready-not-queued", TASK),
    (queued, ("DEL", "ring:noop"), "queue-without-turn", "noop:default"),
    (queued, ("ZREM", "ready_types", "noop"), "queue-without-turn", "noop"),
    (queued, ("ZREM", "start_deadlines", TASK), "ready-without-deadline", TASK),
    (queued, ("ZADD", "ready:noop:default", 1, "flow:0:0:x"), "queued-not-ready", "ready:noop:default flow:0:0:x"),
    (queued, ("ZADD", "ring:noop", 1, "nobody"), "turn-without-queue", "noop:nobody"),
    (queued, ("ZADD", "ready_types", 1, "other"), "turn-without-queue", "other"),
    (queued, ("ZADD", "inflight", 1e15, TASK), "lease-without-task", TASK),
    (queued, ("ZADD", "inflight", 1e15, "flow:9:0:x"), "lease-without-task", "flow:9:0:x"),
    (queued, ("ZADD", "start_deadlines", 1e15, "flow:9:0:x"), "deadline-without-task", "flow:9:0:x"),
    (queued, ("ZADD", "delayed", 1e15, TASK), "delayed-without-task", TASK),
    (queued, ("ZADD", "node_tasks_list", 1, "flow:9:0:x"), "index-without-record", "node_tasks_list flow:9:0:x"),
    (queued, ("PEXPIRE", "run:flow:0:0", 10**9), "open-run-expires", "run:flow:0:0"),
    (queued, ("PEXPIRE", f"plan:{PLAN.digest}", 10**9), "open-run-expires", f"plan:{PLAN.digest}"),
    (queued, ("ZADD", "flow_runs:flow", 2**46 + 9216, "9:0"), "index-without-record", "flow_runs:flow 9:0"),
    (queued, ("ZREM", "flow_runs:flow", "0:0"), "run-not-listed", "flow:0:0"),
    (queued, ("HSET", "run:flow:0:0", "0/state", packed_state("running", 1)), "component-counts", "flow:0:0:0"),
    (running, ("ZREM", "inflight", TASK), "task-without-lease", TASK),
    (running, ("ZREM", "worker_tasks:w1", TASK), "task-without-lease", TASK),
    (ended, ("PERSIST", "run:flow:0:0"), "no-time-to-live", "run:flow:0:0"),
    (ended, ("ZREM", "to_clean", "run:flow:0:0"), "run-not-listed", "flow:0:0"),
]


@pytest.mark.parametrize(
    ("begin", "command", "check", "subject"), BROKEN, ids=[f"{b[2]}-{b[1][0]}-{b[1][1]}" for b in BROKEN]
)
async def test_doctor_finds_and_mends_broken_records_and_indexes(
    ward: Ward, begin: Break, command: tuple[Any, ...], check: str, subject: str
) -> None:
    await begin(ward)
    assert await ward.found() == []
    await ward.do(*command)
    await check_mended(ward, check, subject)


async def completed_in_events(ward: Ward) -> list[int]:
    """Return how many nodes had completed, in each event of a component."""
    return [event.completed for event in await ward.redis.read({3: "0"}, 10) if isinstance(event, ComponentEvent)]


async def test_doctor_restores_the_delay_of_a_retry(ward: Ward) -> None:
    await ward.submit(plan_of("a", retry=RetryPolicy(attempts=3)))
    (taken,) = await ward.take()
    failed = Outcome(taken.task_id, taken.attempt, taken.nonce, OutcomeKind.FAILED, error=TaskError("NODE_ERROR", "no"))
    await ward.shard.complete([failed])
    await ward.do("ZREM", "delayed", TASK)
    await check_mended(ward, "waiting-not-delayed", TASK)


async def test_doctor_restores_the_delay_of_a_suspended_node_task(ward: Ward) -> None:
    await ward.submit(plan_of("a c"))
    for taken, wait in zip(await ward.take(), (Wait("paid", after_ms=1_000), Wait("paid")), strict=True):
        waiting = Outcome(taken.task_id, taken.attempt, taken.nonce, OutcomeKind.SUSPENDED, wait=wait)
        await ward.shard.complete([waiting])
    assert await ward.found() == []
    await ward.do("ZREM", "delayed", TASK)
    await check_mended(ward, "waiting-not-delayed", TASK)


async def test_doctor_counts_large_components_in_steps(ward: Ward) -> None:
    await ward.submit(plan_of(" ".join(f"n{at}" for at in range(600))))
    for each in await ward.take(300):
        assert await ward.complete(each, out="1") == ""
    assert await ward.found() == []
    await ward.do("HSET", "run:flow:0:0", "0/state", packed_state("running", 301))
    await check_mended(ward, "component-counts", "flow:0:0:0")


async def test_mending_counts_ends_a_component_whose_last_end_was_not_counted(ward: Ward) -> None:
    """All of its records have ended; the missing event is sent."""
    await ward.submit(plan_of("a"))
    (taken,) = await ward.take()
    await ward.complete(taken, out="1")
    await ward.do("HSET", "run:flow:0:0", "0/state", packed_state("running"))
    await ward.do("PERSIST", "run:flow:0:0")
    assert ("component-counts", "flow:0:0:0") in await ward.found()
    await ward.found(mend=True)
    assert await completed_in_events(ward) == [1, 1]


async def test_doctor_mends_running_counts_and_listings_of_batches(ward: Ward) -> None:
    plan = plan_of("0 1")
    await ward.shard.save(plan)
    run = RunSubmission(RunName.of_batch("b"), "r", "default", (("0", plan.digest),), -1, begun_ms=ward.clock())
    assert (await ward.shard.submit([run])).results[0].outcome == "accepted"
    assert len(await ward.take(1)) == 1
    await ward.do("HSET", "run:batch:b", "0/running", 7)
    await check_mended(ward, "batch-counts", "batch:b")
    await ward.do("ZREM", "user_runs:default:batch", "batch:b")
    await check_mended(ward, "run-not-listed", "batch:b")
    await ward.do("ZADD", "user_runs:default:batch", ward.clock(), "batch:b")
    await check_mended(ward, "run-not-listed", "batch:b")


async def test_doctor_mends_the_count_of_open_components(ward: Ward) -> None:
    plans = [plan_of("a", digest="d0"), plan_of("b", digest="d1")]
    for plan in plans:
        await ward.shard.save(plan)
    parts = tuple((str(at), plan.digest) for at, plan in enumerate(plans))
    run = RunSubmission(RunName("flow", 0, 0), "r", "default", parts, 3, begun_ms=ward.clock())
    await ward.shard.submit([run])
    await ward.do("HSET", "run:flow:0:0", "open", 5)
    await check_mended(ward, "run-counts", "flow:0:0")


async def test_doctor_looks_at_a_run_once_however_many_components_it_has(ward: Ward) -> None:
    plans = [plan_of(f"n{at}", digest=f"d{at}") for at in range(40)]
    for plan in plans:
        await ward.shard.save(plan)
    parts = tuple((str(at), plan.digest) for at, plan in enumerate(plans))
    await ward.shard.submit([RunSubmission(RunName("flow", 0, 0), "r", "default", parts, 3)])
    assert await examined(ward.redis) < 8 * len(plans)


async def test_doctor_drops_work_left_for_a_missing_component(ward: Ward) -> None:
    item = msgspec.msgpack.encode(("deliver", "flow:7:0", "0", "r7", 0, 1))
    await ward.do("RPUSH", "todo", item)
    assert await ward.found() == [("todo-of-nothing", "deliver flow:7:0:0")]
    await ward.found(mend=True)
    assert await ward.found() == []


async def test_what_cannot_be_read_is_reported_and_the_rest_mended(ward: Ward) -> None:
    await queued(ward)
    await ward.do("HSET", f"plan:{PLAN.digest}", "ids:0", "broken")
    await ward.do("ZADD", "inflight", 1e15, "flow:9:0:x")
    found = {(each.check, each.subject, each.mended) for each in await findings(ward.redis, mend=True)}
    assert found >= {
        ("unreadable", "flow:0:0:0", False),
        ("lease-without-task", "flow:9:0:x", True),
    }
    assert {check for check, _ in await ward.found()} == {"unreadable"}


@pytest.mark.parametrize("kind", ["SET", "ZADD"])
async def test_index_of_another_type_is_removed_and_the_others_are_mended(ward: Ward, kind: str) -> None:
    """Mending anything else runs a script that needs all of them."""
    indexes = ["start_deadlines", "blocked_of", "to_clean", "delayed", "ready_types", "parked"] if kind == "SET" else []
    indexes.append("todo")
    await queued(ward)
    assert await ward.found() == []
    for index in indexes:
        await ward.do("DEL", index)
        await ward.do(*([kind, index, "broken"] if kind == "SET" else [kind, index, 0, "broken"]))
    await ward.do("ZADD", "inflight", 1e15, "flow:9:0:x")
    found = await ward.found(mend=True)
    assert [subject for check, subject in found if check == "key-of-another-type"] == sorted(indexes, key=found_order)
    assert ("lease-without-task", "flow:9:0:x") in found
    await ward.found(mend=True)
    assert await ward.found() == []


def found_order(index: str) -> int:
    """Return the place of an index among those that are examined."""
    examined = ["start_deadlines", "delayed", "ready_types", "parked", "blocked_of", "to_clean", "todo"]
    return examined.index(index)


async def test_count_of_open_components_below_zero_is_mended(ward: Ward) -> None:
    """As when scripts that fail half-way have been repeated."""
    plans = [plan_of("a", digest="d0"), plan_of("b", digest="d1")]
    for plan in plans:
        await ward.shard.save(plan)
    parts = tuple((str(at), plan.digest) for at, plan in enumerate(plans))
    run = RunSubmission(RunName("flow", 0, 0), "r", "default", parts, 3, begun_ms=ward.clock())
    await ward.shard.submit([run])
    await ward.shard.stop(run.run, "r", "", "stopped", "ann", 1000)
    await ward.do("HSET", "run:flow:0:0", "open", -5)
    await check_mended(ward, "run-counts", "flow:0:0")


async def test_component_of_which_nothing_runs_or_waits_is_reported(ward: Ward) -> None:
    """As when a script failed after it had put the end of a node on record, before it released the next one."""
    await ward.submit(plan_of("a.out>b.in"))
    (taken,) = await ward.take()
    await ward.complete(taken, out="1")
    assert await ward.found() == []
    await ward.do("HDEL", "run:flow:0:0", "b:state", "b:input")
    await ward.found(mend=True)
    await ward.found(mend=True)
    assert await ward.found(mend=True) == [("component-stalled", "flow:0:0:0")]


async def test_doctor_reports_an_unmendable_finding_each_time(ward: Ward) -> None:
    await queued(ward)
    await ward.do("DEL", f"plan:{PLAN.digest}")
    for _ in range(2):
        found = await findings(ward.redis, mend=True)
        assert ("plan-missing", PLAN.digest, False) in [(each.check, each.subject, each.mended) for each in found]


async def test_what_is_left_of_a_lost_plan_does_not_pass_for_it(ward: Ward) -> None:
    await queued(ward)
    await ward.do("DEL", f"plan:{PLAN.digest}")
    await ward.do("HSET", f"plan:{PLAN.digest}", "open", -1)
    assert ("plan-missing", PLAN.digest) in await ward.found()


async def test_end_of_a_run_leaves_nothing_in_place_of_its_lost_plan(ward: Ward) -> None:
    plan = plan_of("a", digest="lost")
    await ward.submit(plan)
    (taken,) = await ward.take()
    await ward.do("DEL", f"plan:{plan.digest}")
    # The store still knows the node, from when it was claimed.
    assert await ward.complete(taken) == ""
    assert (await only_component(ward)).status is ComponentStatus.FINISHED
    assert await ward.admin.execute_command("EXISTS", f"{BASE}plan:{plan.digest}") == 0


async def test_doctor_changes_nothing_without_mend(ward: Ward) -> None:
    await queued(ward)
    await ward.do("ZREM", "ready:noop:default", TASK)
    before = await ward.admin.execute_command("ZRANGE", f"{BASE}ready:noop:default", 0, -1)
    assert await ward.found() == await ward.found() == [("ready-not-queued", TASK)]
    assert await ward.admin.execute_command("ZRANGE", f"{BASE}ready:noop:default", 0, -1) == before


async def test_doctor_lists_a_running_node_task_again(ward: Ward) -> None:
    await running(ward)
    await ward.do("ZREM", "node_tasks_list", TASK)
    await check_mended_without_invariants(ward, "record-not-listed", TASK)


async def test_doctor_lets_a_node_task_without_component_expire(ward: Ward) -> None:
    await queued(ward)
    await ward.do("HDEL", "run:flow:0:0", "0/state", "0/facts")
    assert ("task-without-component", TASK) in await ward.found()
    await ward.found(mend=True)
    assert 0 < await ward.admin.pttl(f"{BASE}run:flow:0:0") <= LIMITS.retention_ms
    assert ("task-without-component", TASK) not in await ward.found()


async def submit_two_components(ward: Ward) -> None:
    for plan in (first := plan_of("a"), second := plan_of("b")):
        await ward.redis.save(plan)
    parts = (("0", first.digest), ("1", second.digest))
    await ward.redis.submit([RunSubmission(RunName("flow", 0, 0), "r0", "default", parts, 3)])
    assert await findings(ward.redis) == []


async def test_doctor_says_how_to_end_a_run_that_has_lost_one_of_its_components(ward: Ward) -> None:
    await submit_two_components(ward)
    key = f"{BASE}run:flow:0:0"
    await ward.do("HDEL", "run:flow:0:0", "1/facts", "1/state")
    (said,) = [each for each in await findings(ward.redis, mend=True) if each.check == "task-without-component"]
    assert (said.subject, said.mended) == ("flow:0:0:b", False)
    assert said.problem.endswith(f"its run would never end: remove the key {key}, and the run begins again")
    await ward.admin.delete(key)
    await ward.found(mend=True)
    await submit_two_components(ward)


async def test_doctor_reports_a_component_without_run(ward: Ward) -> None:
    await submit_two_components(ward)
    await ward.do("HDEL", "run:flow:0:0", "run_id", "components")
    found = await findings(ward.redis, mend=True)
    expected = {("component-without-run", f"flow:0:0:{component}", False) for component in "01"}
    assert expected <= {(each.check, each.subject, each.mended) for each in found}


async def test_doctor_ends_a_component_whose_nodes_have_all_ended(ward: Ward) -> None:
    await ended(ward)
    await ward.do("HSET", "run:flow:0:0", "0/state", packed_state("running", 1))
    assert ("component-not-finished", "flow:0:0:0") in await ward.found()
    await ward.found(mend=True)
    assert await completed_in_events(ward) == [1, 1]
    assert ("component-not-finished", "flow:0:0:0") not in await ward.found()


async def test_run_that_expired_before_it_was_cleaned_is_no_finding(ward: Ward) -> None:
    """Results may be kept for as short a time as an ended run waits for its cleaning."""
    await ended(ward)
    await ward.submit(PLAN, cycle=1)
    ward.clock.advance(LIMITS.retention_ms + 1)
    await ward.do("DEL", "run:flow:0:0")
    assert await ward.found() == []
    while (await ward.shard.clean("c", 0)).more:
        pass
    assert await ward.admin.zrange(BASE + "flow_runs:flow", 0, -1) == [b"1:0"]


async def test_doctor_unlists_node_tasks_that_a_worker_does_not_run(ward: Ward) -> None:
    await running(ward)
    await ward.shard.renew("w1", 0, ())
    await ward.do("ZADD", "worker_tasks:w1", 1e15, "flow:9:0:x")
    await check_mended(ward, "index-without-record", "worker_tasks:w1 flow:9:0:x")


async def test_one_mending_leaves_nothing_of_more_entries_than_a_step_examines(ward: Ward) -> None:
    """Entries move up where others are removed, and a worker's later ones come within reach."""
    for number in range(250):
        await ward.do("ZADD", "ready_types", number, f"type{number}")
        await ward.do("ZADD", "worker_tasks:w1", number, f"flow:{number}:0:x")
    await ward.do("ZADD", "to_clean", 1e15, "worker:w1")
    mended = await findings(ward.redis, mend=True)
    assert len({each.name for each in mended}) == len(mended) == 500
    assert await ward.found() == []


async def test_doctor_in_the_background_works_unless_another_replica_leads_the_cleaning(ward: Ward) -> None:
    async def found_by(replica: str) -> list[str]:
        step = await ward.redis.doctor.examine("", 100, None, mend=False, cleaner=replica)
        return [each.check for each in step.examined.findings]

    await queued(ward)
    await ward.do("ZREM", "ready:noop:default", TASK)
    assert await found_by("here") == ["ready-not-queued"]
    assert await found_by("elsewhere") == []
    assert not (await ward.shard.clean("elsewhere", None)).leads
    assert await found_by("here") == ["ready-not-queued"]
    await ward.shard.leave_cleaning("here")
    assert await found_by("elsewhere") == ["ready-not-queued"]
