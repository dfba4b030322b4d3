"""Messages that wait for a worker to read them: few, acknowledged in order, and bounded."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tradewind.node_task_manager.domain.eager import EagerStep, EagerSteps
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import PlanNode
from tradewind.node_task_manager.domain.waiting import Resumption
from tradewind.node_task_manager.ports.work import Assignment, Held
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.node_task_manager.rpc.outgoing_line import MAX_MESSAGE_BYTES, OutgoingLine
from tradewind.server.clock import SystemClock


def ready(size: int) -> Ready:
    """Build an assignment with an input of `size` bytes."""
    given = Assignment("w1", "flow:0:0:a", "n1", 1, "0", "p1", 0, "r0", "default")
    return Ready(0, given, RunName("flow", 0, 0), PlanNode("a", "noop"), (("in", ("x" * size,)),))


async def test_message_is_acknowledged_after_all_its_parts_and_predecessors() -> None:
    line = OutgoingLine(10_000, SystemClock(), lambda: None)
    for sequence, parts in ((2, 2), (3, 1), (4, 0)):
        line.expect(sequence, parts)
    line.acknowledge(3)
    line.acknowledge(2)
    line.ping(1)
    assert (await line.next()).acknowledged_sequence == 0  # type: ignore[union-attr]
    line.acknowledge(2)
    assert (await line.next()).acknowledged_sequence == 4  # type: ignore[union-attr]


async def test_message_without_parts_is_acknowledged_at_once() -> None:
    line = OutgoingLine(10_000, SystemClock(), lambda: None)
    line.expect(2, 0)
    assert (await line.next()).acknowledged_sequence == 2  # type: ignore[union-attr]


async def test_acknowledgement_is_sent_with_next_message() -> None:
    line = OutgoingLine(10_000, SystemClock(), lambda: None)
    line.expect(2, 1)
    line.acknowledge(2)
    line.assign([ready(1)])
    message = await line.next()
    assert message is not None
    assert (len(message.assignments), message.acknowledged_sequence) == (1, 2)
    line.expect(3, 0)
    line.expect(4, 0)
    assert (await line.next()).acknowledged_sequence == 4  # type: ignore[union-attr]


async def test_awaited_acknowledgement_is_sent_by_itself() -> None:
    line = OutgoingLine(10_000, SystemClock(), lambda: None)
    for sequence, awaited in ((2, False), (3, True)):
        line.expect(sequence, 1, awaited=awaited)
    line.acknowledge(2)
    line.acknowledge(3)
    line.close("that is all")
    message = await line.next()
    assert message is not None
    assert message.acknowledged_sequence == 3
    assert await line.next() is None


async def test_losses_of_a_message_are_sent_with_its_acknowledgement() -> None:
    line = OutgoingLine(10_000, SystemClock(), lambda: None)
    line.expect(2, 1)
    line.expect(3, 1)
    reason = "refused" * 100
    line.report_losses(0, [(Held("flow:0:0:a", 1, "n1"), reason)] * 2, 3)
    line.report_losses(0, [(Held("flow:0:0:b", 1, "n2"), "the lease lapsed")])
    line.assign([ready(MAX_MESSAGE_BYTES - 1200)])
    line.acknowledge(3)
    line.acknowledge(2)
    line.close("that is all")
    received = []
    while (message := await line.next()) is not None:
        received.append(([each.reason for each in message.losses], message.acknowledged_sequence))
    # One of them would have fitted into the previous message.
    assert received == [(["the lease lapsed"], 0), ([reason, reason], 3)]


async def test_messages_stay_within_the_size_limit() -> None:
    line = OutgoingLine(10_000, SystemClock(), lambda: None)
    line.assign([ready(900_000)] * 5)
    line.report_losses(0, [(Held("flow:0:0:" + "n" * 100, 1, "n1"), "the lease lapsed")] * 20_000)
    line.close("that is all")
    sizes = []
    while (message := await line.next()) is not None:
        sizes.append(message.ByteSize())
    assert len(sizes) > 3
    assert max(sizes) < 1.1 * MAX_MESSAGE_BYTES


NAME = "n" * 128
TEXT = "中" * 20_000
STEP = EagerStep(NAME, NAME, PlanNode(NAME, NAME, config_json=f'{{"text":"{TEXT}"}}'), NAME)


@pytest.mark.parametrize(
    "changes",
    [
        {"assignment": {"resumed": Resumption(1, "approved", json.dumps("x" * 65_000), "somebody")}},
        {"assignment": {"run_inputs": f'{{"text":"{TEXT}"}}'}},
        {"node": PlanNode("a", "noop", config_json=f'{{"text":"{TEXT}"}}')},
        {"inputs": tuple((f"{NAME}{at}", ["1"]) for at in range(200))},
        {"inputs": (("in", ["1"] * 5_000),)},
        {"eager": EagerSteps((STEP,), STEP.size)},
        {"eager": EagerSteps((replace(STEP, node=PlanNode(NAME, NAME)),) * 64, 64 * (STEP.size - len(TEXT) * 3))},
    ],
    ids=["resumed", "run inputs", "config", "handles", "values", "config of a step", "names of steps"],
)
async def test_everything_large_in_an_assignment_counts(changes: dict[str, Any]) -> None:
    line = OutgoingLine(10_000, SystemClock(), lambda: None)
    usual = ready(1)
    given = structs.replace(usual.assignment, **changes.pop("assignment", {}))
    line.assign([structs.replace(usual, assignment=given, **changes)] * 250)
    line.close("that is all")
    sizes = []
    while (message := await line.next()) is not None:
        sizes.append(message.ByteSize())
    assert max(sizes) < 1.1 * MAX_MESSAGE_BYTES


async def test_full_line_blocks_until_worker_reads_again() -> None:
    on_writable: list[bool] = []
    line = OutgoingLine(10_000, SystemClock(), lambda: on_writable.append(True))
    while not line.full:
        line.assign([ready(1_000_000)])
    waiting = asyncio.create_task(line.writable())
    await asyncio.sleep(0)
    assert not waiting.done()
    await line.next()
    await waiting
    assert (line.full, on_writable) == (False, [True])


async def test_closing_the_line_releases_waiting_writers() -> None:
    line = OutgoingLine(10_000, SystemClock(), lambda: None)
    while not line.full:
        line.assign([ready(1_000_000)])
    line.close("the stream has ended")
    await asyncio.wait_for(line.writable(), 20)
