"""Reports about tokens that a worker made itself: sent with the message that makes them known, or after its ack."""

import asyncio

from tests.unit.worker.outboxes import completed, failure, new_outbox
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker.outbox import Outbox
from tradewind.worker.waiting_outcomes import MAX_BYTES


def begin(outbox: Outbox) -> None:
    """Report that node a has run, and that b was begun with its output."""
    outbox.complete("a", [("output", "1")], 5, "", "b")


def tokens(request: work_pb2.WorkRequest) -> list[str]:
    return [*completed(request), *(each.token for each in request.failures), *request.give_back_tokens]


async def test_outcomes_of_eager_nodes_go_into_same_message() -> None:
    outbox = new_outbox()
    begin(outbox)
    outbox.complete("b", [], 5, "", "c")
    outbox.fail(failure("c"))
    request = outbox.take(2)
    assert tokens(request) == ["a", "b", "c"]
    assert [each.eager_token for each in request.completions] == ["b", "c"]


async def test_later_outcome_waits_for_acknowledgement() -> None:
    for fails in (False, True):
        outbox = new_outbox()
        begin(outbox)
        assert tokens(outbox.take(2)) == ["a"]
        if fails:
            outbox.fail(failure("b"))
        else:
            outbox.complete("b", [], 5)
        assert tokens(outbox.take(3)) == []
        assert outbox.outcome_tokens() == ["b", "a"]
        outbox.acknowledge(2)
        await outbox.wait()
        assert tokens(outbox.take(4)) == ["b"]


async def test_give_back_waits_for_acknowledgement() -> None:
    outbox = new_outbox()
    begin(outbox)
    outbox.take(2)
    outbox.give_back("b")
    assert tokens(outbox.take(3)) == []
    outbox.acknowledge(3)
    assert tokens(outbox.take(4)) == ["b"]


async def test_unrelated_outcomes_do_not_wait() -> None:
    outbox = new_outbox()
    begin(outbox)
    outbox.take(2)
    outbox.complete("b", [], 5)
    outbox.complete("z", [], 5)
    assert tokens(outbox.take(3)) == ["z"]


async def test_log_lines_and_progress_follow_acknowledgement_in_order() -> None:
    outbox = new_outbox()
    begin(outbox)
    outbox.log("b", "INFO", "one", 0)
    outbox.log("z", "INFO", "other", 0)
    outbox.progress("b", 10, "early", "")
    first = outbox.take(2)
    assert [line.message for line in first.logs] == ["other"]
    assert not first.progress
    outbox.log("b", "INFO", "two", 0)
    outbox.progress("b", 20, "later", "")
    assert not outbox.take(3).logs
    outbox.acknowledge(3)
    request = outbox.take(4)
    assert [line.message for line in request.logs] == ["one", "two"]
    assert [each.message for each in request.progress] == ["later"]


async def test_requeue_joins_eager_outcomes_in_one_message() -> None:
    outbox = new_outbox()
    begin(outbox)
    outbox.take(2)
    outbox.complete("b", [], 5)
    outbox.take(3)
    outbox.requeue()
    assert tokens(outbox.take(2)) == ["a", "b"]


async def test_eager_token_is_unconfirmed_until_acknowledged() -> None:
    outbox = new_outbox()
    begin(outbox)
    assert outbox.is_unconfirmed("b")
    outbox.take(2)
    assert outbox.is_unconfirmed("b")
    outbox.acknowledge(2)
    assert not outbox.is_unconfirmed("b")


async def test_eager_outcome_that_does_not_fit_waits_for_acknowledgement() -> None:
    outbox = new_outbox()
    outbox.complete("a", [("output", "1" * (MAX_BYTES - 10))], 5, "", "b")
    outbox.complete("b", [("output", "1" * 100)], 5)
    assert tokens(outbox.take(2)) == ["a"]
    assert tokens(outbox.take(3)) == []
    outbox.acknowledge(2)
    assert tokens(outbox.take(4)) == ["b"]


async def test_drop_includes_eager_successors() -> None:
    outbox = new_outbox()
    begin(outbox)
    outbox.complete("b", [], 5, "", "c")
    assert outbox.drop("a") == ["a", "b", "c"]
    assert tokens(outbox.take(2)) == []


async def test_resync_repeats_predecessor_before_its_eager_node() -> None:
    outbox = new_outbox()
    begin(outbox)
    outbox.take(2)
    outbox.acknowledge(2)
    outbox.complete("b", [], 5)
    outbox.resync()
    assert tokens(outbox.take(3)) == ["a", "b"]


async def test_resync_does_not_begin_lost_or_given_back_eager_nodes() -> None:
    for lost in (True, False):
        outbox = new_outbox("z")
        begin(outbox)
        outbox.complete("y", [("output", "1")], 5, "", "z")
        outbox.take(2)
        outbox.acknowledge(2)
        if lost:
            outbox.drop("b")
        else:
            outbox.give_back("b")
            outbox.take(3)
            outbox.acknowledge(3)
        outbox.resync()
        request = outbox.take(4)
        assert [(each.token, each.eager_token) for each in request.completions] == [("a", ""), ("y", "z")]


async def test_flush_waits_for_withheld_log_lines() -> None:
    outbox = new_outbox()
    begin(outbox)
    outbox.take(2)
    outbox.log("b", "INFO", "one", 0)
    flushed = asyncio.create_task(outbox.flushed())
    outbox.take(3)
    outbox.acknowledge(3)
    await asyncio.sleep(0)
    assert not flushed.done()
    outbox.take(4)
    outbox.acknowledge(4)
    await flushed


async def test_drop_includes_withheld_eager_successors() -> None:
    outbox = new_outbox()
    begin(outbox)
    outbox.take(2)
    outbox.complete("b", [], 5, "", "c")
    outbox.take(3)
    assert outbox.drop("a") == ["a", "b", "c"]
    outbox.complete("c", [], 5)
    assert not outbox.is_unconfirmed("c")


async def test_acknowledgement_makes_known_only_tokens_of_messages_before_it() -> None:
    outbox = new_outbox()
    begin(outbox)
    outbox.take(2)
    outbox.complete("c", [], 5, "", "d")
    outbox.take(3)
    outbox.complete("b", [], 5)
    outbox.complete("d", [], 5)
    outbox.acknowledge(2)
    assert tokens(outbox.take(4)) == ["b"]
    outbox.acknowledge(3)
    assert tokens(outbox.take(5)) == ["d"]
