"""What goes into each message, and what is sent again after a stream has ended."""

import asyncio
import threading

import pytest

from tests.unit.worker.outboxes import completed, failure, new_outbox
from tests.waiting import until
from tradewind.worker import outbox as outbox_module
from tradewind.worker.notes import MAX_LOG_LINES
from tradewind.worker.outbox import REMEMBERED_TOKENS
from tradewind.worker.waiting import Suspension
from tradewind.worker.waiting_outcomes import MAX_BYTES, MAX_ITEMS


async def test_message_holds_everything_since_previous_one() -> None:
    outbox = new_outbox("t9")
    outbox.complete("t1", [("buy", "1"), ("sell", "null")], 1_500_000_000)
    outbox.fail(failure("t2"))
    outbox.give_back("t3")
    outbox.progress("t4", 50, "half", "sums")
    outbox.log("t4", "INFO", "there", 1_700_000_000_123_000_000)
    outbox.renew()
    outbox.pong(7)
    outbox.drain(connected=True)

    await outbox.wait()
    request = outbox.take(2)

    completion = request.completions[0]
    assert [(output.handle, output.value_json) for output in completion.outputs] == [("buy", "1"), ("sell", "null")]
    assert (completion.duration.seconds, completion.duration.nanos) == (1, 500_000_000)
    assert [each.token for each in request.failures] == ["t2"]
    assert list(request.give_back_tokens) == ["t3"]
    (progress,) = request.progress
    assert (progress.token, progress.progress, progress.message) == ("t4", 50, "half")
    assert progress.current_step == "sums"
    assert [(each.token, each.level, each.message) for each in request.logs] == [("t4", "INFO", "there")]
    assert request.logs[0].created_at.ToMilliseconds() == 1_700_000_000_123
    assert (request.renew, list(request.held_tokens)) == (True, ["t9"])
    assert (request.sequence, request.pong, request.draining, request.capacity) == (2, 7, True, 0)

    following = outbox.take(3)
    assert (following.renew, following.pong, following.ByteSize() < 10) == (False, 0, True)


async def test_only_the_latest_progress_of_a_running_node_is_sent() -> None:
    outbox = new_outbox()
    outbox.progress("t1", 10, "", "")
    outbox.progress("t1", 20, "", "")
    outbox.progress("t2", 90, "", "")
    outbox.complete("t2", [], 0)

    assert [(each.token, each.progress) for each in outbox.take(2).progress] == [("t1", 20)]


async def test_progress_goes_with_the_end_of_what_has_not_completed() -> None:
    outbox = new_outbox()
    for token in ("failed", "waits", "given back"):
        outbox.progress(token, 50, "half", "")
    outbox.fail(failure("failed"))
    outbox.complete("waits", Suspension("approval", 0, -1, "", ""), 0)
    outbox.give_back("given back")

    request = outbox.take(2)

    assert {each.token for each in request.progress} == {"failed", "waits"}
    assert ([each.token for each in request.failures], completed(request)) == (["failed"], ["waits"])


async def test_messages_are_split_by_count_and_bytes() -> None:
    outbox = new_outbox()
    for index in range(MAX_ITEMS + 1):
        outbox.complete(f"t{index}", [("output", "1")], 0)
    assert [len(outbox.take(2).completions), len(outbox.take(3).completions)] == [MAX_ITEMS, 1]

    large = "€" * 333_000
    for index in range(5):
        outbox.complete(f"l{index}", [("output", f'"{large}"')], 0)
    requests = [outbox.take(sequence) for sequence in range(4, 8)]

    assert [len(request.completions) for request in requests] == [2, 2, 1, 0]
    assert all(request.ByteSize() < MAX_BYTES + 1000 for request in requests)


async def test_long_log_lines_stay_within_message_limit() -> None:
    outbox = new_outbox()
    for _ in range(1000):
        outbox.log("t1", "INFO", "ü" * 4000, 0)
    outbox.complete("t1", [("output", f'"{"x" * 1_000_000}"')], 0)

    sizes: list[int] = []
    while True:
        request = outbox.take(len(sizes) + 2)
        if not request.logs:
            break
        sizes.append(request.ByteSize())

    assert max(sizes) < 3 * 1024 * 1024


async def test_requeue_repeats_unacknowledged_outcomes_in_order() -> None:
    outbox = new_outbox()
    for token in ("t1", "t2"):
        outbox.complete(token, [("output", "1")], 0)
    outbox.take(2)
    outbox.complete("t3", [], 0)
    outbox.fail(failure("t4"))
    outbox.give_back("t5")
    outbox.log("t3", "INFO", "first", 0)
    outbox.take(3)
    outbox.acknowledge(2)
    outbox.complete("t6", [], 0)
    outbox.log("t6", "INFO", "second", 0)

    assert sorted(outbox.outcome_tokens()) == ["t3", "t4", "t6"]
    outbox.requeue()
    assert sorted(outbox.outcome_tokens()) == ["t3", "t4", "t6"]
    again = outbox.take(2)

    assert completed(again) == ["t3", "t6"]
    assert [each.token for each in again.failures] == ["t4"]
    assert list(again.give_back_tokens) == ["t5"]
    assert [each.message for each in again.logs] == ["first", "second"]


async def test_give_back_waits_for_log_lines_of_its_token() -> None:
    outbox = new_outbox()
    for number in range(700):
        outbox.log("t1" if number % 2 else "t2", "INFO", f"line {number}", 0)
    outbox.give_back("t1")
    outbox.give_back("t3")
    first = outbox.take(2)
    assert (len(first.logs), list(first.give_back_tokens)) == (500, ["t3"])

    outbox.acknowledge(2)
    second = outbox.take(3)
    assert (len(second.logs), list(second.give_back_tokens)) == (200, ["t1"])


async def test_flush_waits_for_count_of_dropped_lines() -> None:
    outbox = new_outbox()
    for number in range(MAX_LOG_LINES):
        outbox.log("t1", "INFO", f"line {number}", 0)
    while outbox.take(2).logs:
        pass
    outbox.log("t1", "INFO", "one too many", 0)
    flushed = asyncio.create_task(outbox.flushed())
    await asyncio.sleep(0)
    outbox.acknowledge(2)
    await asyncio.sleep(0)
    assert not flushed.done()
    (line,) = outbox.take(3).logs
    assert line.message == "1 log lines were dropped here: this worker had too many to send"
    outbox.acknowledge(3)
    await flushed


async def test_dropped_lines_are_counted_once_lines_can_be_sent() -> None:
    outbox = new_outbox()
    for index in range(MAX_LOG_LINES):
        outbox.log("t1", "INFO", str(index), 0)
    sequences = range(2, 2 + MAX_LOG_LINES // MAX_ITEMS)
    for sequence in sequences:
        outbox.take(sequence)
    for _ in range(3):
        outbox.log("t1", "INFO", "lost", 0)
        assert not outbox.take(sequences.stop).logs

    outbox.acknowledge(sequences.stop)
    async with asyncio.timeout(10):
        await outbox.wait()
    (line,) = outbox.take(sequences.stop + 1).logs

    assert line.message == "3 log lines were dropped here: this worker had too many to send"


async def test_dropped_outcome_is_not_repeated() -> None:
    outbox = new_outbox()
    outbox.complete("t1", [], 0)
    outbox.fail(failure("t2"))
    outbox.give_back("t3")
    outbox.take(2)
    outbox.complete("t4", [], 0)
    outbox.complete("t5", [], 0)
    for token in ("t1", "t2", "t3", "t4", "unknown"):
        outbox.drop(token)
    outbox.requeue()
    again = outbox.take(2)

    assert completed(again) == ["t5"]
    assert not again.failures
    assert not again.give_back_tokens


async def test_tokens_are_remembered_after_acknowledgement() -> None:
    outbox = new_outbox()
    assert not outbox.remembers("t0")
    for index in range(REMEMBERED_TOKENS + 1):
        outbox.complete(f"t{index}", [], 0)
    assert outbox.remembers("t0")
    for sequence in range(2, 2 + REMEMBERED_TOKENS // MAX_ITEMS + 1):
        outbox.take(sequence)
        outbox.acknowledge(sequence)

    assert not outbox.remembers("t0")
    assert outbox.remembers("t1")
    assert outbox.remembers(f"t{REMEMBERED_TOKENS}")


async def test_token_acknowledged_again_counts_as_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "REMEMBERED_TOKENS", 2)
    outbox = new_outbox()
    for sequence, token in enumerate(("t1", "t2"), 2):
        outbox.complete(token, [], 0)
        outbox.take(sequence)
        outbox.acknowledge(sequence)
        outbox.resync()
    outbox.take(4)
    outbox.acknowledge(4)

    assert outbox.remembers("t1")
    assert outbox.remembers("t2")


async def test_dropped_log_lines_are_counted_by_token() -> None:
    outbox = new_outbox()
    for index in range(MAX_LOG_LINES + 3):
        outbox.log("t1", "INFO", str(index), 0)
    outbox.log("t2", "INFO", "lost", 0)

    lines = [line for sequence in range(2, 20) for line in outbox.take(sequence).logs]

    assert [line.message for line in lines[:MAX_LOG_LINES]] == [str(index) for index in range(MAX_LOG_LINES)]
    assert [(line.token, line.level, line.message) for line in lines[MAX_LOG_LINES:]] == [
        ("t1", "WARNING", "3 log lines were dropped here: this worker had too many to send"),
        ("t2", "WARNING", "1 log lines were dropped here: this worker had too many to send"),
    ]


async def test_unacknowledged_log_lines_are_bounded() -> None:
    outbox = new_outbox()
    for index in range(2 * MAX_LOG_LINES):
        outbox.log("t1", "INFO", str(index), 0)
        if index % MAX_ITEMS == 0:
            outbox.take(index)
    outbox.requeue()
    kept = [line for sequence in range(2, 50) for line in outbox.take(sequence).logs]
    assert MAX_LOG_LINES <= len(kept) < 1.1 * MAX_LOG_LINES

    outbox.acknowledge(50)
    outbox.log("t1", "INFO", "room again", 0)
    assert [line.message for line in outbox.take(51).logs] == ["room again"]


async def test_wait_ends_when_any_thread_reports_something() -> None:
    outbox = new_outbox()
    waiting = asyncio.create_task(outbox.wait())
    await asyncio.sleep(0)
    assert not waiting.done()

    thread = threading.Thread(target=outbox.log, args=("t1", "INFO", "from a thread", 0))
    thread.start()
    await waiting
    thread.join()

    assert [line.message for line in outbox.take(2).logs] == ["from a thread"]


async def test_lines_of_concurrent_threads_are_all_sent() -> None:
    outbox = new_outbox()
    taken: list[str] = []

    def talk(name: str) -> None:
        for index in range(200):
            outbox.log(name, "INFO", f"{name}-{index}", 0)
            outbox.progress(name, index % 100, "", "")

    threads = [threading.Thread(target=talk, args=(f"t{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    sequence = 1
    while any(thread.is_alive() for thread in threads) or len(taken) < 800:
        async with asyncio.timeout(30):
            await outbox.wait()
        sequence += 1
        taken += [line.message for line in outbox.take(sequence).logs]

    assert sorted(taken) == sorted(f"t{thread}-{index}" for thread in range(4) for index in range(200))


async def test_flushed_returns_when_everything_is_acknowledged() -> None:
    outbox = new_outbox()
    await outbox.flushed()
    outbox.complete("t1", [], 0)
    outbox.log("t1", "INFO", "line", 0)
    flushed = asyncio.create_task(outbox.flushed())
    outbox.take(2)
    outbox.complete("t2", [], 0)
    outbox.acknowledge(2)
    await asyncio.sleep(0)
    assert not flushed.done()
    outbox.take(3)
    outbox.acknowledge(3)

    await until(flushed.done, "all is acknowledged")
