"""The whole engine under a virtual clock."""

import asyncio
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.house.project import ROOT
from tests.system.simulated import FAILS_AT, SILENT_AT, feed, history_of, single
from tradewind.client import (
    CycleStatus,
    FlowStatus,
    InvalidInput,
    NotFound,
    NotificationKind,
    WrongStatus,
)
from tradewind.flow import Flow, Retry
from tradewind.testing import VirtualStack, simulate
from tradewind.worker import Context, node


def test_simulated_month_is_correct_and_takes_seconds() -> None:
    begun = time.process_time()
    lines = history_of(days=30).lines
    took = time.process_time() - begun
    by_kind: dict[str, list[dict[str, object]]] = {}
    for line in lines:
        by_kind.setdefault(line["what"], []).append(line)
    first_ms = lines[0]["at_ms"]
    # The last cycle begins at the very moment at which everything ends.
    assert [(line["cycle"], line["at_ms"]) for line in by_kind["cycle_began"]][:720] == [
        (cycle, first_ms + cycle * 3_600_000) for cycle in range(720)
    ]
    assert [line["cycle"] for line in by_kind["cycle_ended"] if line["status"] == "completed"] == list(range(720))
    assert [line["node_task_id"] for line in by_kind["attempt_failed"]] == [
        f"trades:{24 * day + FAILS_AT}:0:feed" for day in range(30)
    ]
    assert {line["node_task_id"] for line in by_kind["lease_lost"]} == {
        f"trades:{24 * day + SILENT_AT}:0:feed" for day in range(30)
    }
    second = [line["node_task_id"] for line in by_kind["attempt_began"] if line["attempt"] == 2]
    assert len(second) == 60
    outputs = [line["outputs"] for line in by_kind["attempt_completed"] if str(line["node_task_id"]).endswith("order")]
    assert outputs == [{"output": 2 * cycle + 1} for cycle in range(720)]
    # It takes two seconds on an otherwise idle machine.
    assert took < 30


def test_work_that_will_be_cached_is_awaited_in_simulated_time() -> None:
    ran: list[int] = []

    @node("slow")
    async def slow(ctx: Context) -> int:
        ran.append(ctx.cycle)
        await asyncio.sleep(200)
        return 1

    async def two_cycles(stack: VirtualStack) -> None:
        flow = Flow("cached", 0, overlap="allow")
        flow.node("only", slow, cache="analysis")
        await stack.client.register_flow("cached", flow)
        first = await stack.client.run_flow("cached")
        await stack.run_for(seconds=150)
        second = await stack.client.run_flow("cached")
        for run in (first, second):
            await run.result()

    simulate(two_cycles, [slow])
    assert ran == [0]


def test_expired_results_are_an_error_rather_than_empty() -> None:
    @node("place")
    async def place(ctx: Context) -> int:
        return ctx.cycle

    @node("nothing", outputs=[])
    async def nothing() -> None:
        pass

    async def main(stack: VirtualStack) -> None:
        for name in ("place", "nothing"):
            flow = Flow(name, 0, overlap="allow")
            flow.node("only", name)
            await stack.client.register_flow(name, flow)
        assert await (await stack.client.run_flow("nothing")).result() == {}
        for cycle in range(105):
            assert await (await stack.client.run_flow("place")).result() == {"only": {"output": cycle}}
        # The scheduler removes the oldest cycles ten at a time, the node task manager each one as soon as it may.
        await stack.run_for(minutes=20)
        assert (await stack.client.get_cycle("place", 0)).status is CycleStatus.COMPLETED
        with pytest.raises(WrongStatus, match="the node tasks of cycle 0 of place are no longer on record") as expired:
            await stack.client.cycle("place", 0).result()
        assert (expired.value.reason, expired.value.subject) == ("RESULTS_EXPIRED", "cycles/place:0:0")

    simulate(main, [place, nothing])


def test_cycles_that_have_just_ended_are_kept_beyond_keep_cycles() -> None:
    @node("place")
    async def place(ctx: Context) -> int:
        return ctx.cycle

    async def main(stack: VirtualStack) -> None:
        flow = Flow("place", 0, overlap="allow", keep_cycles=1)
        flow.node("only", "place")
        await stack.client.register_flow("place", flow)
        runs = [await stack.client.run_flow("place") for _ in range(3)]
        await stack.run_for(seconds=59)
        assert [(await run.wait()).cycle for run in runs] == [0, 1, 2]
        await stack.run_for(seconds=1)
        await (await stack.client.run_flow("place")).wait()
        assert [cycle.cycle async for cycle in stack.client.list_cycles("place")] == [3]

    simulate(main, [place])


def test_flow_runs_at_the_instant_at_which_one_of_its_name_was_deleted() -> None:
    @node("place")
    async def place(ctx: Context) -> int:
        return ctx.cycle

    async def main(stack: VirtualStack) -> None:
        flow = Flow("place", 0)
        flow.node("only", "place")
        for _ in range(2):
            await stack.client.register_flow("place", flow)
            run = await stack.client.run_flow("place")
            assert (await run.wait(10)).cycle == 0
            await stack.client.delete_flow("place")

    simulate(main, [place])


def test_history_is_reproducible_byte_by_byte() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.system.simulated", "1"],
        check=True,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    assert run.stdout == history_of(days=1).to_json()
    assert run.stdout.count(b'"cycle_ended"') == 24


def test_trigger_on_flow_end_fires_at_once() -> None:
    async def main(stack: VirtualStack) -> None:
        await stack.client.register_flow("one", single("feed"))
        await stack.client.save_trigger("after", queue="chain", on_finished="one")
        handle = await stack.client.run_flow("one")
        async with stack.client.receive_due("chain") as due_triggers:
            async for due in due_triggers:
                assert (due.event["flow_id"], due.event["cycle"], due.event["status"]) == ("one", 0, "completed")
                assert (await handle.wait()).status is CycleStatus.COMPLETED
                await due.ack()
                break
        assert stack.now - datetime(2026, 1, 1, tzinfo=UTC) < timedelta(seconds=1)

    simulate(main, [feed])


def test_watched_events_and_notifications_arrive_at_once() -> None:
    @node("second")
    async def second(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ConnectionError
        return ctx.attempt

    async def main(stack: VirtualStack) -> None:
        client, begun = stack.client, stack.now
        notifications = client.watch_notifications()
        first_notification = asyncio.ensure_future(anext(notifications))
        await client.register_flow("one", single("second", Retry(2)))
        cycle = await client.run_flow("one")
        async for _ in client.watch_task("one:0:0:only"):
            pass
        await cycle.result()
        assert await (await client.submit_task("second", retry=Retry(2))).result() == {"output": 2}
        assert await (await client.submit_batch("second", [{}] * 3, retry=Retry(2))).result() == [{"output": 2}] * 3
        assert [(await first_notification).kind, (await anext(notifications)).kind] == [
            "task_completed",
            "batch_finished",
        ]
        await notifications.aclose()
        # Each waits for its second attempt, for a second or a little less.
        assert stack.now - begun < timedelta(seconds=4)

    simulate(main, [second])


def test_flow_that_pauses_itself_notifies_its_user_of_each_pause() -> None:
    @node("unlucky")
    async def unlucky() -> None:
        raise ValueError("no luck")

    async def main(stack: VirtualStack) -> None:
        client = stack.client
        flow = Flow("one", "1m", pause_after_failures=3)
        flow.node("only", unlucky)
        await client.register_flow("one", flow)
        for _ in range(2):
            await client.start_flow("one")
            await stack.run_for(minutes=5)
        paused = [each async for each in client.list_notifications() if each.kind is NotificationKind.FLOW_PAUSED]
        assert [each.cycle for each in paused] == [5, 2]
        assert str(paused[0]) == (
            'flow "one" is paused until somebody resumes it: '
            "paused after 3 failed cycles in a row, the last of which was cycle 5"
        )

    simulate(main, [unlucky])


def test_finally_node_runs_at_once_after_cycle_timeout() -> None:
    @node("endless")
    async def endless() -> None:
        await asyncio.Event().wait()

    async def main(stack: VirtualStack) -> None:
        begun = stack.now
        flow = Flow("one", "1h", timeout="1m")
        flow.node("only", endless)
        flow.finally_(flow.node("last", feed))
        await stack.client.register_flow("one", flow)
        cycle = await (await stack.client.run_flow("one")).wait()
        assert cycle.status is CycleStatus.TIMEOUT
        assert (await stack.client.get_node_task("one:0:0:last")).status == "completed"
        assert stack.now - begun < timedelta(minutes=1, seconds=1)

    simulate(main, [endless, feed])


def test_bulk_job_progresses_without_further_calls() -> None:
    @node("fails")
    async def fails() -> None:
        raise ConnectionError

    async def main(stack: VirtualStack) -> int:
        await stack.client.register_flow("one", single("fails"))
        for _ in range(3):
            await (await stack.client.run_flow("one")).wait()
        await stack.run_for(hours=10)
        job = await stack.client.start_bulk_job("rerun", ["one"])
        await stack.run_for(seconds=5)
        return (await stack.client.get_bulk_job(job.job_id)).done

    assert simulate(main, [fails]) == 3


def test_interval_trigger_first_fires_by_simulated_clock() -> None:
    async def main(stack: VirtualStack) -> None:
        begun = stack.now
        await stack.client.save_trigger("t", queue="q", every=60)
        async with stack.client.receive_due("q") as due_triggers:
            due = await anext(aiter(due_triggers))
            await due.ack()
        assert due.planned_time == begun + timedelta(seconds=60)

    simulate(main, [feed])


def test_flow_is_checked_against_node_types_from_the_start() -> None:
    async def main(stack: VirtualStack) -> None:
        flow = Flow("wrong", 0)
        flow.node("only", "feed", {"nothing": 1})
        with pytest.raises(InvalidInput, match=r"nodes\[0\]\.config\.nothing: unknown key"):
            await stack.client.register_flow("wrong", flow)

    simulate(main, [feed])


def test_unknown_flow_and_naive_start_time_raise_errors() -> None:
    async def main(stack: VirtualStack) -> None:
        await stack.client.wait_ready()
        with pytest.raises(NotFound, match="nothing"):
            await stack.client.get_flow("nothing")

    simulate(main, [feed])
    with pytest.raises(ValueError, match="time zone"):
        simulate(main, [feed], start=datetime(2030, 1, 1))


async def test_simulation_where_a_loop_runs_is_refused() -> None:
    async def main(stack: VirtualStack) -> None: ...

    with pytest.raises(RuntimeError, match="call it where none runs, such as in a plain test function"):
        simulate(main, [feed])


@pytest.mark.parametrize(
    "schedule",
    [{"interval": "1h"}, {"cron": "0 * * * *"}, {"interval": "1h", "start": "2000-01-01T00:00:00Z"}],
    ids=["interval", "cron", "anchored"],
)
def test_flow_started_in_the_past_catches_up(schedule: dict[str, str]) -> None:
    async def main(stack: VirtualStack) -> list[timedelta]:
        full_hour = stack.now.replace(minute=0, second=0, microsecond=0)
        flow = Flow("f", schedule={**schedule, "catch_up": "all", "catch_up_window": "1d"}, overlap="queue_all")
        flow.node("only", "delay", {"seconds": 1})
        await stack.client.register_flow("f", flow)
        await stack.client.start_flow("f", at=full_hour - timedelta(hours=3))
        await stack.run_for(minutes=5)
        cycles = [cycle async for cycle in stack.client.list_cycles("f")]
        return [full_hour - (cycle.planned_time or stack.now) for cycle in cycles]

    assert simulate(main, [], workers=0)[-3:] == [timedelta(hours=1), timedelta(hours=2), timedelta(hours=3)]


@pytest.mark.parametrize("on", [{"interval": "1h"}, {"event": {"name": "price"}}, {"cron": "0 * * * *"}], ids=str)
def test_flow_whose_schedule_ends_during_pause_completes_when_resumed(on: dict[str, str]) -> None:
    async def main(stack: VirtualStack) -> None:
        client = stack.client
        flow = Flow("f", schedule={**on, "end": (stack.now + timedelta(hours=3)).isoformat()})
        flow.node("only", "delay", {"seconds": 1})
        await client.register_flow("f", flow)
        await client.start_flow("f")
        await stack.run_for(minutes=10)
        await client.pause_flow("f")
        assert [reason.code for reason in await client.explain_flow("f")] == ["paused"]
        await stack.run_for(hours=4)
        assert [reason.code for reason in await client.explain_flow("f")] == ["paused", "schedule_over"]
        assert (await client.resume_flow("f")).status is FlowStatus.COMPLETED
        skipped = [firing.count async for firing in client.list_firings("f") if firing.outcome == "skipped"]
        assert sum(skipped) == (0 if "event" in on else 2)

    simulate(main, [], workers=0)


def test_single_node_will_do_and_time_cannot_run_backwards() -> None:
    @node("one")
    async def one() -> int:
        return 1

    async def main(stack: VirtualStack) -> None:
        assert await (await stack.client.submit_task(one)).result() == {"output": 1}
        with pytest.raises(ValueError, match="time cannot run backwards: -7200 s"):
            await stack.run_for(hours=-2)

    simulate(main, one)
