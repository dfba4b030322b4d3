"""Ad-hoc tasks and batches over a whole stack: the client and the commands."""

import asyncio
import json
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.system.processes import Shell
from tests.unit.cli.shell import Shell as TerminalShell
from tests.waiting import until
from tradewind.client import (
    BatchFailed,
    BatchStatus,
    Client,
    Conflict,
    InvalidInput,
    NodeTaskStatus,
    NotFound,
    TaskFailed,
    TimedOut,
    WrongStatus,
)
from tradewind.flow import Retry, Timeouts
from tradewind.standalone import Standalone
from tradewind.worker import Worker, node


async def test_task_returns_outputs_of_its_node(client: Client) -> None:
    handle = await client.submit_task("numbers", {"start": 5, "count": 2})
    assert handle.warnings == ()
    assert await handle.result(30) == {"numbers": [5, 6]}
    assert (await handle.get()).config == {"start": 5, "count": 2}
    assert await handle.progress() == (100, "")

    async def logged() -> bool:
        return [line.message async for line in handle.logs()] == ["numbers from 5"]

    await until(logged, "the line is stored")
    assert [task.node_task_id async for task in client.list_tasks(statuses=["completed"])] == [handle.task_id]
    assert (await client.get_node_task(handle.task_id)).outputs == {"numbers": [5, 6]}


async def test_failed_task_and_batch_report_error(client: Client) -> None:
    failing = await client.submit_task("failing", {"total": 3})
    with pytest.raises(TaskFailed, match="ended with status failed: ValueError: will not have 3") as caught:
        await failing.result(30)
    assert caught.value.task.status is NodeTaskStatus.FAILED
    assert caught.value.task.ended
    given_up = await client.submit_task("failing", {"total": 3}, retry=Retry(2, initial="10ms"))
    with pytest.raises(TaskFailed, match="ValueError: will not have 3\nnot tried again: all 2 attempts failed"):
        await given_up.result(30)
    failed = await client.submit_batch("failing", [{"total": 3}])
    with pytest.raises(BatchFailed, match="ValueError: will not have 3"):
        await failed.result(30)


async def test_invalid_task_parameters_are_refused_at_submission(client: Client) -> None:
    with pytest.raises(InvalidInput) as caught:
        await client.submit_task("numbers", {"begin": 5, "count": "three", "start": {"$secret": "first"}})
    assert {(fault.path, fault.message) for fault in caught.value.violations} == {
        ("parameters_json.begin", "unknown key; known keys are start, count"),
        ("parameters_json.count", '"three" is not of type "integer"'),
    }
    with pytest.raises(InvalidInput, match='parameters_json: "total" is required: the node has no default for it'):
        await client.submit_task("failing")


async def test_batch_with_faulty_items_is_refused_whole_with_all_faults(client: Client) -> None:
    items: list[dict[str, Any] | str | None] = [
        {"start": 1},
        {"begin": 5, "count": "three"},
        "{",
        None,
        '{"count": []}',
    ]
    with pytest.raises(InvalidInput) as caught:
        await client.submit_batch("numbers", items)
    faults = [(fault.path, fault.message.partition(":")[0]) for fault in caught.value.violations]
    assert sorted(faults[:2]) == [
        ("parameters_json[1].begin", "unknown key; known keys are start, count"),
        ("parameters_json[1].count", '"three" is not of type "integer"'),
    ]
    assert faults[2:] == [
        ("parameters_json[2]", "is not JSON"),
        ("parameters_json[4].count", '[] is not of type "integer"'),
    ]
    with pytest.raises(InvalidInput) as caught:
        await client.submit_batch("numbers", [{"begin": 5, "end": 6}] * 70)
    assert 50 < len(caught.value.violations) < 140
    assert caught.value.violations[-1].message.startswith("and more")
    assert [batch async for batch in client.list_batches()] == []
    with pytest.raises(InvalidInput) as caught:
        await client.submit_batch("numbers", [{"start": 1}, 7, "[1]", {"start": object()}])  # type: ignore[list-item]
    assert [fault.path for fault in caught.value.violations] == [f"parameters[{place}]" for place in (1, 2, 3)]


@node("renamed")
async def before(window: int) -> int:
    return window


@node("renamed")
async def after(width: int) -> int:
    return width


async def test_repeated_request_stays_accepted_after_workers_change_parameters(stack: Standalone) -> None:
    async with Client(stack.address) as client:
        async with Worker([before], address=stack.address):
            task = await client.submit_task("renamed", {"window": 3}, request_id="first")
            assert await task.result(30) == {"output": 3}
            batch = await client.submit_batch("renamed", [{"window": 3}] * 2, request_id="first")
            assert await batch.result(30) == [{"output": 3}] * 2
        async with Worker([after], address=stack.address):

            async def refused() -> bool:
                try:
                    await client.submit_task("renamed", {"window": 3})
                except InvalidInput:
                    return True
                return False

            await until(refused, "the new declaration is known")
            again = await client.submit_task("renamed", {"window": 3}, request_id="first")
            assert again.task_id == task.task_id
            twice = await client.submit_batch("renamed", [{"window": 3}] * 2, request_id="first")
            assert twice.batch_id == batch.batch_id


async def test_a_running_task_is_watched_and_cancelled(client: Client, tmp_path: Path) -> None:
    handle = await client.submit_task("gate", {"file": str(tmp_path / "never")})
    with pytest.raises(TimedOut):
        await handle.wait(0.01)
    async for task in handle.watch():
        if task.progress == 50 and not task.status.ended:
            assert (task.status, task.message) == (NodeTaskStatus.RUNNING, "at the gate")
            await handle.cancel(reason="enough")
    assert (task.status, task.reason) == (NodeTaskStatus.TERMINATED, "enough")


async def test_batch_returns_outputs_in_item_order(client: Client) -> None:
    handle = await client.submit_batch("numbers", ({"start": at, "count": 1} for at in range(300)))
    seen = [batch async for batch in handle.watch()]
    for batch in seen:
        at = batch.progress
        assert at.queued + at.running + at.completed + at.failed + at.cancelled == at.total == 300
    assert seen[-1].status is BatchStatus.COMPLETED
    assert await handle.result() == [{"numbers": [at]} for at in range(300)]
    assert (await handle.progress()).percent == 100
    assert [batch.batch_id async for batch in client.list_batches()] == [handle.batch_id]


@node("uneven", outputs=["out"])
async def uneven(x: int) -> int:
    """Fail for every tenth number."""
    await asyncio.sleep(0.002)
    if x % 10 == 0:
        raise ValueError(f"will not have {x}")
    return x


async def test_batch_counts_always_add_up_with_twenty_workers(stack: Standalone) -> None:
    async with AsyncExitStack() as running:
        for at in range(20):
            await running.enter_async_context(Worker([uneven], address=stack.address, worker_id=f"w{at}", capacity=3))
        client = await running.enter_async_context(Client(stack.address))
        handle = await client.submit_batch("uneven", [{"x": x} for x in range(2000)])
        seen = []
        async for batch in handle.watch():
            seen += [batch.progress, await handle.progress()]
        items = [item async for item in handle.items()]
    for progress in seen:
        parts = (progress.queued, progress.running, progress.completed, progress.failed, progress.cancelled)
        assert sum(parts) == progress.total == 2000
        assert progress.running <= 60
    assert (batch.status, seen[-1].completed, seen[-1].failed) == (BatchStatus.PARTIAL, 1800, 200)
    assert len({item.worker_id for item in items}) == 20
    assert [item.outputs.get("out") for item in items] == [x if x % 10 else None for x in range(2000)]


async def test_batch_with_failed_items_ends_as_partial(stack: Standalone, client: Client) -> None:
    async with Worker([uneven], address=stack.address):
        handle = await client.submit_batch("uneven", [{"x": 1}, {"x": 10}, {"x": 3}])
        with pytest.raises(BatchFailed, match="2 of 3 completed, 1 failed") as caught:
            await handle.result(30)
    assert caught.value.batch.status is BatchStatus.PARTIAL
    assert [item.outputs.get("out") for item in caught.value.items] == [1, None, 3]


async def test_a_batch_larger_than_a_message_is_submitted_whole(client: Client) -> None:
    handle = await client.submit_batch("total", [{"numbers": [7] * 100_000}] * 30)
    assert await handle.result(30) == [{"total": 700_000}] * 30


@pytest.mark.parametrize(
    ("items", "cache", "fault"),
    [(60, None, "parameters_json: must have at most 8 MiB in all"), (20, "nowhere", 'cache.name: no cache "nowhere"')],
)
async def test_batch_refused_during_upload_reports_reason(
    client: Client, items: int, cache: str | None, fault: str
) -> None:
    for _ in range(5):
        with pytest.raises(InvalidInput, match=fault):
            await client.submit_batch("numbers", [{"start": 5, "note": "x" * 200_000}] * items, cache=cache)


async def test_retries_and_timeouts_apply_to_batch_items_and_tasks(client: Client, tmp_path: Path) -> None:
    retry = Retry(2, initial="1ms", jitter=0)
    handle = await client.submit_batch("failing", [{"total": 1}, {"total": 2}], retry=retry, priority=3)
    with pytest.raises(BatchFailed) as caught:
        await handle.result(30)
    assert [item.attempt for item in caught.value.items] == [2, 2]
    late = await client.submit_task(
        "gate", {"file": str(tmp_path / "never")}, timeouts=Timeouts(start_to_close="100ms")
    )
    with pytest.raises(TaskFailed, match="ended with status failed: TIMEOUT"):
        await late.result(30)
    with pytest.raises(ValueError, match='"soon" is not a length of time'):
        await client.submit_task("failing", retry=Retry(2, initial="soon"))


async def test_unoffered_node_type_waits_or_is_refused_on_request(client: Client) -> None:
    handle = await client.submit_batch("nobodys", [{}, {}])
    assert handle.warnings == ('no live worker offers node type "nobodys"; it waits until one does',)
    assert (await handle.get()).reason == 'no live worker offers node type "nobodys"'
    with pytest.raises(WrongStatus, match="has not ended; cancel it first"):
        await handle.delete()
    assert (await handle.cancel()).status is BatchStatus.CANCELLED
    await handle.delete()
    assert [batch async for batch in client.list_batches()] == []
    near = await client.submit_task("numbrs")
    assert near.warnings[0].endswith('it waits until one does; did you mean "numbers"?')
    await near.cancel()
    with pytest.raises(NotFound, match='no node type "numbrs"; did you mean "numbers"'):
        await client.submit_task("numbrs", require_worker=True)
    with pytest.raises(NotFound, match='no node type "nobodys"'):
        await client.submit_task("nobodys", require_worker=True)
    assert [task.node_type async for task in client.list_tasks()] == ["numbrs"]


async def test_repeated_request_id_returns_same_batch_or_conflicts(client: Client) -> None:
    first = await client.submit_batch("numbers", [{"start": 1}], request_id="monday")
    assert (await client.submit_batch("numbers", [{"start": 1}], request_id="monday")).batch_id == first.batch_id
    with pytest.raises(Conflict):
        await client.submit_batch("numbers", [{"start": 2}], request_id="monday")
    with pytest.raises(InvalidInput, match="must have 1 to 10000 items"):
        await client.submit_batch("numbers", [])


async def test_task_commands(shell: Shell) -> None:
    shown = await shell("task", "submit", "numbers", "--param", "start=4", "--param", "count=1", "--wait")
    assert re.search(r"type +numbers\nstatus +completed(.|\n)*output +numbers = \[4\]", shown)
    (task,) = await shell.json("task", "list", "--status", "completed")
    assert task["node_task_id"] in await shell("task", "list")
    assert "completed" in await shell("task", "show", task["node_task_id"])
    assert await shell("task", "cancel", task["node_task_id"]) == f"{task['node_task_id']} is completed\n"
    failed = await shell("task", "submit", "failing", "--params-json", '{"total": 1}', "--wait", exit_code=1)
    assert "ValueError: will not have 1" in failed
    again = ("--param", "total=1", "--attempts", "2", "--priority", "-1", "--wait")
    assert re.search(r"attempt +2", await shell("task", "submit", "failing", *again, exit_code=1))
    limits = ("--concurrency", "acct-7:1:drop_new", "--rate", "acct-7:100/m:2")
    assert "completed" in await shell("task", "submit", "numbers", *limits, "--wait")
    assert "must be at least 1, is 0" in await shell(
        "task", "submit", "numbers", "--concurrency", "acct-7:0", exit_code=2
    )
    assert "must be at most 5" in await shell("task", "submit", "numbers", "--rate", "acct-7:5/m:6", exit_code=2)
    assert "is not KEY:MAX[:WHEN_FULL]" in await shell("task", "submit", "numbers", "--concurrency", "1", exit_code=2)
    waiting = await shell.json("task", "submit", "nobodys", "-o", "json")
    assert waiting["warnings"] == ['no live worker offers node type "nobodys"; it waits until one does']
    assert "no live worker offers" in await shell("task", "show", waiting["task"]["node_task_id"])
    assert "no node type" in await shell("task", "submit", "nobodys", "--require-worker", exit_code=2)


async def test_batch_commands(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    file.write_text("".join(f'{{"start": {at}, "count": 1}}\n' for at in range(20)), encoding="utf-8")
    lines = (await shell("batch", "submit", "numbers", str(file), "--watch")).splitlines()
    assert re.fullmatch(r"batch \w{20} completed in .+: 20 completed of 20", lines[-1])
    (batch,) = await shell.json("batch", "list")
    shown = await shell("batch", "show", batch["batch_id"])
    assert re.search(r"items +20: 0 queued, 0 running, 20 completed, 0 failed, 0 cancelled\ndone +100 %", shown)
    results = (await shell("batch", "results", batch["batch_id"])).splitlines()
    assert results[3] == "3  completed  numbers = [3]"
    assert await shell("batch", "results", batch["batch_id"], "--failed") == ""
    watched = (await shell("batch", "watch", batch["batch_id"], "-o", "json")).splitlines()
    assert json.loads(watched[-1])["progress"]["percent"] == 100

    async def logged() -> bool:
        return "numbers from 19" in await shell("task", "logs", batch["batch_id"])

    await until(logged, "the last line is stored")
    assert "numbers from 19" in {line["message"] for line in await shell.json("task", "logs", batch["batch_id"])}

    waiting = await shell("batch", "submit", "nobodys", "-", input="{}\n\n{}\n")
    (waits,) = await shell.json("batch", "list", "--status", "queued")
    assert f"submitted batch {waits['batch_id']}: 2 items" in waiting
    cancelled = await shell("batch", "cancel", waits["batch_id"], "--reason", "enough")
    assert cancelled == f"batch {waits['batch_id']} is cancelled: 2 cancelled of 2\n"
    assert 'cancelled  enough (by "default")' in await shell("batch", "show", waits["batch_id"])
    assert await shell("batch", "delete", waits["batch_id"]) == f"batch {waits['batch_id']} deleted\n"
    assert "no batch" in await shell("batch", "delete", waits["batch_id"], exit_code=2)


async def test_batch_submit_shows_progress_bar_at_terminal(
    client: Client, stack: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second item waits at its gate until the first has ended."""
    monkeypatch.setenv("TRADEWIND_ADDRESS", stack.address)
    gates = [tmp_path / name for name in ("open", "shut")]
    gates[0].touch()
    file = tmp_path / "items.jsonl"
    file.write_text("".join(json.dumps({"file": str(gate)}) + "\n" for gate in gates), encoding="utf-8")
    running = asyncio.create_task(
        asyncio.to_thread(TerminalShell().at_terminal, "batch", "submit", "gate", str(file), "--watch")
    )

    async def half_done() -> bool:
        return [batch.progress.completed async for batch in client.list_batches()] == [1]

    await until(half_done, "one item is done", timeout=60)
    gates[1].touch()
    ran = await asyncio.wait_for(running, 60)
    assert ran.code == 0
    assert re.search(r"\d/2", ran.out)
    assert re.search(r"batch \w{20} completed in .+: 2 completed of 2", ran.out)


async def test_batch_file_faults_are_reported_by_line(shell: Shell) -> None:
    output = await shell("batch", "submit", "numbers", "-", input='{}\n[1]\n{"a"\n', exit_code=2)
    assert "line 2: not a JSON object" in output
    assert "line 3: invalid JSON" in output
    assert "no items" in await shell("batch", "submit", "numbers", "-", input="\n", exit_code=2)
    assert 'error: no batch "missing"' in await shell("batch", "show", "missing", exit_code=2)
    assert await shell.json("batch", "list") == []
