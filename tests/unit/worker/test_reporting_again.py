"""Outcomes that were acknowledged and are reported again, because the store may have lost them."""

import asyncio
from types import SimpleNamespace

import pytest

from tests.unit.worker.outboxes import completed, failure, new_outbox
from tradewind.worker import acknowledged


async def test_resync_repeats_recent_outcomes_and_renews_held_tokens() -> None:
    outbox = new_outbox("t9")
    outbox.complete("t1", [("out", "1")], 0)
    outbox.fail(failure("t2"))
    outbox.take(2)
    outbox.acknowledge(2)

    outbox.resync()

    again = outbox.take(3)
    assert completed(again) == ["t1"]
    assert [each.token for each in again.failures] == ["t2"]
    assert (again.renew, list(again.held_tokens)) == (True, ["t9"])
    outbox.acknowledge(3)
    await outbox.flushed()


async def test_resync_repeats_latest_outcomes_after_any_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(acknowledged, "time", SimpleNamespace(monotonic=lambda: now))
    outbox = new_outbox()
    for sequence in (2, 3, 4):
        outbox.complete(f"t{sequence}", [("out", "1")], 0)
        outbox.take(sequence)
        outbox.acknowledge(sequence)
        now += 4.0

    now += 600.0
    outbox.resync()

    assert completed(outbox.take(5)) == ["t3", "t4"]


async def test_outcome_is_repeated_when_its_node_task_is_assigned_again() -> None:
    outbox = new_outbox()
    outbox.complete("t1", [("out", "1")], 0)
    outbox.fail(failure("t2"))
    outbox.complete("t3", [("out", "3")], 0)
    outbox.take(2)
    for token in ("t1", "t2"):
        outbox.assigned_again(token)
    under_way = outbox.take(3)
    assert not under_way.completions, "an outcome under way was repeated"
    assert not under_way.give_back_tokens, "a node task whose outcome is under way was given back"
    outbox.acknowledge(3)

    for token in ("t1", "t2"):
        outbox.assigned_again(token)

    again = outbox.take(4)
    assert (completed(again), [each.token for each in again.failures]) == (["t1"], ["t2"])
    outbox.acknowledge(4)
    await asyncio.wait_for(outbox.flushed(), 20)


async def test_node_task_assigned_again_is_given_back_once_its_outcome_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acknowledged, "RESYNC_MESSAGES", 1)
    outbox = new_outbox()
    for sequence in (2, 3):
        outbox.complete(f"t{sequence}", [("out", "1")], 0)
        outbox.take(sequence)
        outbox.acknowledge(sequence)

    for token in ("t2", "t3"):
        outbox.assigned_again(token)

    again = outbox.take(4)
    assert (list(again.give_back_tokens), completed(again)) == (["t2"], ["t3"])


async def test_flush_completes_after_give_back_and_resync() -> None:
    outbox = new_outbox()
    outbox.give_back("t1")
    outbox.take(2)
    outbox.acknowledge(2)

    outbox.resync()
    outbox.take(3)

    await asyncio.wait_for(outbox.flushed(), 20)


async def test_outcomes_kept_for_resync_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledged, "RESYNC_BYTES", 250_000)
    outbox = new_outbox()
    for sequence in range(2, 12):
        outbox.complete(f"t{sequence}", [("out", f'"{"x" * 100_000}"')], 0)
        outbox.take(sequence)
        outbox.acknowledge(sequence)

    outbox.resync()

    assert completed(outbox.take(12)) == ["t10", "t11"]
