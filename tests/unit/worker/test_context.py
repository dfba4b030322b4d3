"""What a node learns from its context, and what it can report."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tradewind.testing import LogLine, run_node
from tradewind.worker import Context, node
from tradewind.worker.texts import LOG_BYTES, PROGRESS_BYTES, STEP_BYTES

WHEN = datetime(2010, 3, 1, 12, 30, tzinfo=UTC)


async def test_context_has_facts_of_cycle_and_node() -> None:
    seen: dict[str, Any] = {}
    others = ("log", "progress", "heartbeat", "check_stop", "cycle_memory", "flow_memory", "set_result")

    @node("facts")
    async def facts(ctx: Context) -> None:
        for name in dir(ctx):
            if not name.startswith("_") and name not in others:
                seen[name] = getattr(ctx, name)

    later = datetime.now(UTC) + timedelta(minutes=5)
    await run_node(
        facts,
        facts={
            "flow_id": "momentum",
            "cycle": 7,
            "run": 2,
            "run_id": "4f",
            "component_id": "1",
            "node_id": "fast",
            "attempt": 3,
            "user_id": "ada",
            "planned_time": WHEN,
            "deadline": later,
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        },
    )

    assert seen == {
        "flow_id": "momentum",
        "cycle": 7,
        "run": 2,
        "run_id": "4f",
        "component_id": "1",
        "node_id": "fast",
        "node_type": "facts",
        "item": None,
        "attempt": 3,
        "user_id": "ada",
        "planned_time": WHEN,
        "deadline": later,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "idempotency_key": "4f:fast",
        "node_task_id": "momentum:7:2:fast",
        "stop_requested": False,
        "resumed": None,
    }


@node("told")
async def told(ctx: Context) -> str:
    return ctx.idempotency_key


@pytest.mark.parametrize(
    ("facts", "key"),
    [
        ({"flow_id": "momentum", "cycle": 7, "run_id": "4f", "node_id": "buy"}, "4f:buy"),
        ({"flow_id": "momentum", "cycle": 9, "run_id": "4f", "node_id": "buy"}, "4f:buy"),
        ({"flow_id": "momentum", "cycle": 7, "run_id": "4f", "node_id": "buy", "item": 0}, "4f:buy:0"),
        ({"flow_id": "momentum", "cycle": 7, "run": 1, "run_id": "5a", "node_id": "buy"}, "5a:buy"),
        # The run id of an ad-hoc task or of a batch only says what is to be done.
        ({"flow_id": "", "node_task_id": "task:t1", "run_id": "4f", "node_id": ""}, "task:t1:4f"),
        ({"flow_id": "", "node_task_id": "batch:b1:5", "run_id": "4f", "node_id": "5"}, "batch:b1:5:4f"),
    ],
)
async def test_idempotency_key_is_that_of_the_run_whatever_its_number(facts: dict[str, Any], key: str) -> None:
    assert (await run_node(told, facts=facts)).output == key


async def test_node_task_id_of_an_item_ends_in_its_place() -> None:
    @node("item")
    async def item(ctx: Context) -> str:
        return ctx.node_task_id

    facts = {"flow_id": "momentum", "cycle": 7, "node_id": "fast", "item": 12}
    assert (await run_node(item, facts=facts)).output == "momentum:7:0:fast:12"


async def test_deadline_is_none_without_timeouts() -> None:
    @node("facts")
    async def facts(ctx: Context) -> bool:
        return ctx.deadline is None

    assert (await run_node(facts)).output is True


async def test_log_lines_have_levels_arguments_and_fields() -> None:
    @node("talks")
    async def talks(ctx: Context) -> None:
        ctx.log("plain")
        ctx.log.debug("%s of %d", "two", 2)
        ctx.log.info("100 % sure")
        ctx.log.warning("bought", symbol="IBM", shares=3)
        ctx.log.error("wrong %d", "count")
        try:
            raise ValueError("nothing")
        except ValueError:
            ctx.log.exception("failed with %s", "it")
        ctx.log.critical(42)
        ctx.log("x" * 10_000)

    run = await run_node(talks)

    assert run.logs[:5] == [
        LogLine("info", "plain"),
        LogLine("debug", "two of 2"),
        LogLine("info", "100 % sure"),
        LogLine("warning", "bought symbol='IBM' shares=3"),
        LogLine("error", "wrong %d ('count')"),
    ]
    assert run.logs[5].message.startswith("failed with it\nTraceback (most recent call last):\n")
    assert run.logs[5].message.endswith("ValueError: nothing")
    assert run.logs[6] == LogLine("critical", "42")
    assert len(run.logs[7].message) == LOG_BYTES


async def test_faulty_log_call_does_not_fail_node() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    class Silent(Rude):
        __repr__ = Rude.__str__

    @node("talks")
    async def talks(ctx: Context) -> None:
        ctx.log("%(bought)d of %(wanted)d", {"bought": 1, "wanted": 2})
        ctx.log("%(sold)d", {"bought": 1})
        ctx.log("failed: %s", Rude())
        ctx.log(Rude())
        ctx.log(Silent())
        ctx.log("failed: %s", Silent(), why=Silent())
        ctx.log("failed", level=[])  # type: ignore[arg-type]
        ctx.log("failed", level=Silent())  # type: ignore[arg-type]

    assert [line.message for line in (await run_node(talks)).logs] == [
        "1 of 2",
        "%(sold)d ({'bought': 1})",
        "failed: %s (Rude())",
        "Rude()",
        "<Silent that cannot be printed>",
        "failed: %s (<Silent that cannot be printed>) why=<Silent that cannot be printed>",
        "failed (level=[] is not one of debug, info, warning, error, critical)",
        "failed (level=<Silent that cannot be printed> is not one of debug, info, warning, error, critical)",
    ]


async def test_async_node_may_await_log_lines() -> None:
    @node("awaiting", outputs=[])
    async def awaiting(ctx: Context) -> None:
        await ctx.log("plain")
        await ctx.log.warning("spread is %s", 3)
        await ctx.log("odd", level="loud")

    assert [line.level for line in (await run_node(awaiting)).logs] == ["info", "warning", "info"]


async def test_heartbeat_repeats_latest_progress() -> None:
    @node("alive")
    async def alive(ctx: Context) -> None:
        await ctx.heartbeat()
        await ctx.progress(50, "half")
        ctx.heartbeat()

    assert (await run_node(alive)).progress == [(0, ""), (50, "half"), (50, "half")]


@pytest.mark.parametrize(
    ("level", "name"),
    [("warn", "warning"), ("Error", "error"), (logging.DEBUG, "debug"), ("fatal", "critical"), ("info", "info")],
)
async def test_log_accepts_level_by_name_or_number(level: str | int, name: str) -> None:
    @node("says")
    async def says(ctx: Context) -> None:
        ctx.log("spread is %s", 3, level=level, symbol="IBM")

    assert (await run_node(says)).logs == [LogLine(name, "spread is 3 symbol='IBM'")]


async def test_unknown_level_is_mentioned_in_log_line() -> None:
    @node("says")
    async def says(ctx: Context) -> None:
        ctx.log("water %s", "rises", level="high")
        ctx.log("water", level=7)
        ctx.log.warning("water", level="high")

    assert (await run_node(says)).logs == [
        LogLine("info", "water rises (level='high' is not one of debug, info, warning, error, critical)"),
        LogLine("info", "water (level=7 is not one of debug, info, warning, error, critical)"),
        LogLine("warning", "water level='high'"),
    ]


async def test_progress_must_be_a_number() -> None:
    @node("lost")
    async def lost(ctx: Context, percent: Any) -> None:
        ctx.progress(float("nan"))
        ctx.progress(float("inf"))
        ctx.progress(percent)

    run = await run_node(lost, percent=None)

    assert [percent for percent, _ in run.progress] == [0, 100]
    assert run.error is not None
    assert run.error.message == "ctx.progress(None): the first argument must be a number from 0 to 100"


async def test_progress_never_falls_and_stays_within_bounds() -> None:
    @node("walks")
    async def walks(ctx: Context) -> None:
        await ctx.progress(-5)
        await ctx.progress(50.7, "half")
        ctx.progress(20, "ü" * 2000)
        await ctx.progress(250)

    run = await run_node(walks)

    assert [percent for percent, _ in run.progress] == [0, 50, 50, 100]
    assert run.progress[1] == (50, "half")
    assert len(run.progress[2][1].encode()) <= PROGRESS_BYTES


async def test_step_stays_until_next_step_is_reported() -> None:
    @node("steps")
    async def steps(ctx: Context) -> None:
        await ctx.progress(10, step="loads")
        await ctx.progress(40, "half of it")
        await ctx.progress(60, step="fits" + "x" * 300)
        ctx.heartbeat()

    run = await run_node(steps)
    assert [step[:5] for step in run.steps] == ["loads", "fitsx"]
    assert [len(step) for step in run.steps] == [5, STEP_BYTES]


async def test_threaded_node_uses_same_context() -> None:
    @node("walks")
    def walks(ctx: Context) -> str:
        ctx.progress(50, "half")
        ctx.log.info("there")
        ctx.check_stop()
        return ctx.flow_id

    run = await run_node(walks)

    assert (run.output, run.progress, run.logs) == ("test", [(50, "half")], [LogLine("info", "there")])


async def test_logs_and_progress_after_node_has_ended_are_ignored() -> None:
    kept: list[Context] = []

    @node("leaks")
    async def leaks(ctx: Context) -> None:
        kept.append(ctx)

    run = await run_node(leaks)
    kept[0].log("too late")
    await kept[0].progress(99)

    assert (run.logs, run.progress) == ([], [])


async def test_awaiting_progress_yields_to_event_loop() -> None:
    turns: list[str] = []

    @node("fair")
    async def fair(ctx: Context) -> None:
        other = asyncio.create_task(asyncio.to_thread(lambda: None))
        asyncio.get_running_loop().call_soon(turns.append, "other")
        await ctx.progress(10)
        turns.append("node")
        await other

    await run_node(fair)

    assert turns == ["other", "node"]
