"""What limits hold back and who holds their slots is broken by hand, found and mended."""

from typing import Any

import msgspec
import pytest

from tests.stores.node_task_manager.invariants import check_invariants
from tests.stores.node_task_manager.raw_keys import BASE
from tests.stores.node_task_manager.shards import plan_of
from tests.stores.node_task_manager.wards import (
    OTHER,
    TASK,
    Break,
    Ward,
    check_mended,
    check_mended_without_invariants,
    queued,
)
from tradewind.node_task_manager.ports.work import Held
from tradewind.server.rates import KeyRate, Rate


async def running_one(ward: Ward) -> None:
    await queued(ward)
    assert len(await ward.take()) == 1


async def blocked(ward: Ward) -> None:
    """Of two runs under the limit of their flow, one runs and the other waits."""
    await ward.configure(max_running_per_flow=1)
    await running_one(ward)


LIMITED: list[tuple[Break, tuple[Any, ...], str, str]] = [
    (blocked, ("ZADD", "slots:flow:flow", 1, "flow:8:0:x"), "slot-without-holder", "flow:flow flow:8:0:x"),
    (blocked, ("ZREM", "slots:flow:flow", TASK), "holder-without-slot", TASK),
    (blocked, ("ZREM", "blocked:flow:flow|noop:default:1", OTHER), "ready-not-queued", OTHER),
    (blocked, ("SREM", "blocked_by:flow:flow", "noop:default:1"), "waiters-not-indexed", "flow:flow|noop:default:1"),
    (
        blocked,
        ("ZADD", "blocked:flow:flow|noop:default:1", 1, "flow:8:0:x"),
        "queued-not-ready",
        "blocked:flow:flow|noop:default:1 flow:8:0:x",
    ),
]


@pytest.mark.parametrize(("begin", "command", "check", "subject"), LIMITED, ids=[f"{b[2]}-{b[1][0]}" for b in LIMITED])
async def test_doctor_finds_and_mends_broken_limits(
    ward: Ward, begin: Break, command: tuple[Any, ...], check: str, subject: str
) -> None:
    await begin(ward)
    assert await ward.found() == []
    await ward.do(*command)
    await check_mended(ward, check, subject)


async def test_mending_a_leaked_slot_admits_the_node_tasks_it_blocked(ward: Ward) -> None:
    """The slot of an ended node task is still taken: nothing of the flow would ever run again."""
    await ward.configure(max_running_per_flow=1)
    await queued(ward)
    (first,) = await ward.take()
    assert await ward.complete(first, out="1") == ""
    await ward.do("ZADD", "slots:flow:flow", 1, first.task_id)
    assert await ward.take() == []
    assert ("slot-without-holder", f"flow:flow {first.task_id}") in await ward.found()
    await ward.found(mend=True)
    assert len(await ward.take()) == 1
    await check_invariants(ward.server)


async def forget_slot(ward: Ward, limit: str) -> None:
    """Let the record of node `a` say that it holds no slot, instead of one of a limit."""
    state = await ward.server.connect().hget(f"{BASE}run:flow:0:0", "a:state") or b""
    held = msgspec.msgpack.encode(limit)
    assert held in state
    await ward.do("HSET", "run:flow:0:0", "a:state", state.replace(held, msgspec.msgpack.encode("")))


async def test_mending_admits_node_tasks_blocked_by_a_limit_with_room(ward: Ward) -> None:
    await blocked(ward)
    await ward.do("ZREM", "slots:flow:flow", TASK)
    await forget_slot(ward, "flow:flow")
    await check_mended_without_invariants(ward, "held-back-with-room", "flow:flow|noop:default:1")
    assert len(await ward.take()) == 1


async def test_mending_unparks_a_user_with_nothing_running(ward: Ward) -> None:
    await ward.configure(max_running_per_user=1)
    await running_one(ward)
    assert await ward.take() == []
    await ward.do("DEL", "slots:user:default")
    await forget_slot(ward, "user:default")
    await check_mended_without_invariants(ward, "held-back-with-room", "parked default:noop")
    assert len(await ward.take()) == 1


async def test_doctor_restores_the_recheck_of_node_tasks_waiting_for_a_rate(ward: Ward) -> None:
    await ward.submit(plan_of("a c", rate=KeyRate("k", Rate(1, 3_600_000))))
    assert len(await ward.take()) == 1
    assert await ward.found() == []
    await ward.do("ZREM", "delayed", "|pace:default:k")
    ((check, subject),) = await ward.found()
    assert (check, subject.partition("|")[0]) == ("held-back-with-room", "pace:default:k")
    await check_mended(ward, check, subject)


@pytest.mark.parametrize(
    ("index", "entry"),
    [
        *(("parked", entry) for entry in ("gone", "default:", ":noop", "default:noop:x")),
        *(("blocked_of", entry) for entry in ("gone", "default|", "default|flow:flow", "default|flow:flow|noop:1")),
    ],
)
async def test_entry_that_names_nothing_held_back_stops_nobody_and_is_removed(
    ward: Ward, index: str, entry: str
) -> None:
    await ward.configure(max_running_per_user=1, max_running_per_flow=1)
    await running_one(ward)
    await ward.do("ZADD", index, 0, entry)
    await ward.do("SADD", "blocked_by:flow:flow", "gone")
    assert await ward.submit(plan_of("x"), flow_id="other") == "accepted"
    assert sum(each.count + each.held_back for each in await ward.redis.queues()) == 2
    (holder,) = await ward.redis.held_by("w1")
    (task,) = await ward.shard.tasks([holder])
    assert task is not None
    await ward.shard.give_back("w1", 0, [Held(holder, 1, task.nonce)])
    await ward.do("ZADD", index, 0, entry)
    await ward.shard.reopen()
    await ward.do("ZADD", index, 0, entry)
    assert await ward.found() == [("index-without-record", f"{index} {entry}")]
    await ward.found(mend=True)
    assert await ward.found() == []
