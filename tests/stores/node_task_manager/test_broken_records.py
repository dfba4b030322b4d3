"""Records that somebody has changed by hand, or that the store has lost, cost nothing but what depends on them."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.stores.node_task_manager.shards import plan_of
from tests.stores.node_task_manager.wards import Ward
from tradewind.node_task_manager.domain.ad_hoc import AdHocWork
from tradewind.node_task_manager.domain.component import ComponentStatus, Release, RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.ports.reading import Line
from tradewind.node_task_manager.ports.work import Vacancy
from tradewind.server.faults import Unreadable

RUN = RunName("flow", 0, 0)


async def test_component_whose_plan_is_lost_is_skipped_when_it_is_released(ward: Ward) -> None:
    plan = plan_of("a b")
    await ward.shard.save(plan)
    run = RunSubmission(RUN, "r0", "default", (("0", plan.digest),), 3, begun_ms=ward.clock())
    await ward.shard.submit([structs.replace(run, withheld=("0",))])
    await ward.do("DEL", f"plan:{plan.digest}")
    await ward.shard.release(RUN, "r0", [Release("0")])
    (component,) = await ward.shard.components([(RUN, "0")])
    assert component is not None
    assert (component.status, component.skipped) == (ComponentStatus.FINISHED, 2)


async def test_statistics_of_another_type_do_not_keep_node_tasks_from_ending(ward: Ward) -> None:
    await ward.submit(plan_of("a.out>b.in"))
    (taken,) = await ward.take()
    await ward.do("DEL", "queue:stats")
    await ward.do("SET", "queue:stats", "x")
    assert await ward.complete(taken, out="1") == ""
    assert [each.task_id for each in await ward.take()] == [str(RUN) + ":b"]


@pytest.mark.parametrize(
    "commands",
    [[("DEL",), ("SET", "x")], [("HSET", "0/facts", b"\xff\xfe[", "a:state", b"\xff\xfe[")]],
    ids=["another type", "undecodable"],
)
async def test_broken_run_keeps_no_other_from_going_on_and_makes_way_for_itself(
    ward: Ward, commands: list[tuple[Any, ...]]
) -> None:
    plan = plan_of("a.out>b.in")
    await ward.shard.save(plan)
    runs = [
        RunSubmission(RunName("flow", at, 0), f"r{at}", "default", (("0", plan.digest),), 3, begun_ms=ward.clock())
        for at in range(2)
    ]
    await ward.shard.submit(runs)
    taken = await ward.take(2)
    for verb, *more in commands:
        await ward.do(verb, "run:flow:0:0", *more)
    found = await ward.shard.components([(run.run, "0") for run in runs])
    assert [component is not None for component in found] == [False, True]
    whole = next(each for each in taken if each.task_id == "flow:1:0:a")
    assert await ward.complete(whole, out="1") == ""
    again = await ward.shard.submit([runs[0], structs.replace(runs[1], run=RunName("flow", 2, 0), run_id="r2")])
    assert [result.outcome for result in again.results] == ["accepted", "accepted"]
    assert {each.task_id for each in await ward.take(9)} == {"flow:0:0:a", "flow:1:0:b", "flow:2:0:a"}


@pytest.mark.parametrize("name", ["worker_session", "worker_incarnation"])
async def test_session_of_another_type_counts_as_lost_and_stops_no_other_worker(ward: Ward, name: str) -> None:
    sessions = [(await ward.shard.open_session(worker, "i", [])).session for worker in ("w1", "w2")]
    await ward.submit(plan_of("a b"))
    await ward.do("DEL", f"{name}:w1")
    await ward.do("HSET", f"{name}:w1", "x", "broken")
    vacancies = [Vacancy(f"w{at}", session, 1, ("noop",)) for at, session in enumerate(sessions, 1)]
    given = (await ward.shard.claim(vacancies)).assignments
    assert {each.worker_id for each in given} == {"w1", "w2"}
    ward.clock.advance(1)
    again = await ward.shard.open_session("w1", "i", [])
    assert (again.session > sessions[0], again.lost) == (True, ())
    assert (await ward.shard.begin_process("w1", "i")).assignments == ()


async def test_what_people_read_may_be_of_another_type_and_stops_no_node_task(ward: Ward) -> None:
    """Who asks for it is told its key; after the doctor has removed it, it is there again."""
    work = AdHocWork("default", "noop", ("{}",))
    runs = [work.run(name) for name in ("t", "u")]
    await ward.shard.save(work.plan(runs[0]))
    broken = ("notifications:default", "task_events:task:t", "user_runs:default:task", "logs:task:t")
    for name in broken:
        await ward.do("HSET", name, "x", "broken")
    assert [each.outcome for each in (await ward.shard.submit([work.submission(run) for run in runs])).results] == [
        "accepted"
    ] * 2
    given = await ward.take()
    shard = ward.shard
    reads: list[Callable[[], Awaitable[object]]] = [
        lambda: shard.list_notifications("default", "", 9),
        lambda: shard.task_events("task:t", "0-0", 9),
        lambda: shard.runs_of("default", "task", None, 9),
        lambda: shard.lines(runs[0], "", 9),
    ]
    for name, read in zip(broken, reads, strict=True):
        with pytest.raises(Unreadable, match="is of another type") as refused:
            await read()
        assert refused.value.key.endswith(name)
    lines = [Line(each.task_id, each.attempt, each.nonce, "INFO", "node", "hello", 1) for each in given]
    await shard.record([], lines)
    assert [line.message for line in await shard.lines(runs[1], "", 9)] == ["hello"]
    assert [await ward.complete(each) for each in given] == ["", ""]


@pytest.mark.parametrize(
    "entry", [b"broken", *map(msgspec.msgpack.encode, ([], {"run": 1}, [1, 2], ["x"], ["x", "r", 1, 0, 0], ["f:0:0"]))]
)
async def test_flows_are_cleaned_and_deleted_behind_what_is_no_run(ward: Ward, entry: bytes) -> None:
    await ward.do("RPUSH", "walks", entry)
    assert (await ward.shard.purge("flow")).done
    assert not (await ward.shard.clean("c", None)).more


@pytest.mark.parametrize("entry", ["rubbish", "run:x", "1", "x:y"])
async def test_entry_of_an_index_that_names_nothing_ends_no_cleaning_and_no_deletion(ward: Ward, entry: str) -> None:
    for cycle in range(2):
        await ward.submit(plan_of("a"), cycle=cycle)
        for each in await ward.take():
            await ward.complete(each, out="1")
    for index, score in (("to_clean", 0), ("ended_runs", 0), ("flow_runs:flow", 0)):
        await ward.do("ZADD", index, score, entry)
    await ward.do("ZADD", "flow_runs:flow", 2**46 + 1, f"{entry}:")
    ward.clock.advance(3_600_000)
    await ward.shard.clean("c", 0)
    assert not (await ward.shard.clean("c", 0)).more
    while not (await ward.shard.purge("flow")).done:
        pass
    assert not await ward.shard.component_ids(RUN)
    assert await ward.found() == []
