"""What node tasks say of themselves, progress and log lines: the contract, for every store."""

from dataclasses import replace

from tests.stores.node_task_manager.shards import RUN, Bench, plan_of
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.ports.reading import Line, Progress


async def test_progress_never_falls_and_only_the_lease_holder_may_report_it(bench: Bench) -> None:
    await bench.submit(plan_of("a"))
    (a,) = await bench.take()
    entries = [Progress(a.task_id, a.nonce, at, f"at {at}") for at in (40, 20)]
    foreign = Progress(a.task_id, "nobody", 90, "mine")
    line = Line(a.task_id, a.attempt, a.nonce, "INFO", "node", "hello", 5)
    assert await bench.shard.record([*entries, foreign], [line]) == 3
    (record,) = await bench.shard.tasks([a.task_id])
    assert record is not None
    assert (record.progress, record.message) == (40, "at 40")
    (kept,) = await bench.shard.lines(RUN, "", 10)
    assert (kept.message, kept.node_id, kept.attempt) == ("hello", "a", 1)
    assert await bench.shard.lines(RUN, kept.log_id, 10) == []


async def test_log_lines_from_outside_their_attempt_get_the_current_time(bench: Bench) -> None:
    began = bench.clock()
    await bench.submit(plan_of("a"))
    (a,) = await bench.take()
    now = bench.clock.advance(30_000)
    times = [began, began + 10_000, now, 0, began - 7_200_000, now + 7_200_000]
    await bench.shard.record([], [Line(a.task_id, a.attempt, a.nonce, "INFO", "node", "x", at) for at in times])
    lines = await bench.shard.lines(RUN, "", 10)
    assert [line.at for line in lines] == [began, began + 10_000, now, now, now, now]


async def test_cycles_before_the_newest_five_keep_their_newest_hundred_lines(bench: Bench) -> None:
    said: list[list[Line]] = []
    for cycle in range(7):
        await bench.submit(plan_of("a"), cycle=cycle)
        (a,) = await bench.take()
        said.append([Line(a.task_id, a.attempt, a.nonce, "INFO", "node", str(at), 1) for at in range(150)])
        await bench.shard.record([], said[-1])
    kept = [await bench.shard.lines(RunName("flow", cycle, 0), "", 1000) for cycle in range(7)]
    assert list(map(len, kept)) == [100, 100, 150, 150, 150, 150, 150]
    assert (kept[0][0].message, kept[0][-1].message) == ("50", "149")
    await bench.shard.record([], [replace(line, message="late") for line in said[0]] * 2)
    late = await bench.shard.lines(RUN, "", 1000)
    assert (late[-1].message, len(late) <= 200) == ("late", True), "Redis drops a hundred at a time"


async def test_only_the_newest_hundred_cycles_keep_logs(bench: Bench) -> None:
    for cycle in [*range(1, 103), 0]:
        await bench.submit(plan_of("a"), cycle=cycle)
        (a,) = await bench.take()
        await bench.shard.record([], [Line(a.task_id, a.attempt, a.nonce, "INFO", "node", "x", 1)])
    kept = [cycle for cycle in range(103) if await bench.shard.lines(RunName("flow", cycle, 0), "", 10)]
    assert kept == list(range(3, 103))


async def test_a_cycle_keeps_its_newest_ten_thousand_lines(bench: Bench) -> None:
    await bench.submit(plan_of("a"))
    (a,) = await bench.take()
    for first in range(0, 10_500, 500):
        texts = map(str, range(first, first + 500))
        await bench.shard.record([], [Line(a.task_id, a.attempt, a.nonce, "INFO", "node", text, 1) for text in texts])
    kept = [int(line.message) for line in await bench.shard.lines(RUN, "", 20_000)]
    assert kept == [*range(kept[0], 10_500)], "the oldest went"
    assert 10_000 <= len(kept) <= 10_100, "Redis drops a hundred at a time"
