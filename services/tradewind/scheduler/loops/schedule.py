"""Begins cycles when flows are due, or when a cycle that others waited for has ended; settles the outbox."""

import asyncio
import math
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import groupby
from typing import Protocol

import structlog

from tradewind.scheduler.domain.due import DueAnswer, DueFlow
from tradewind.scheduler.loops.owned_stream import OwnedStream
from tradewind.scheduler.loops.owned_work import OwnedWork
from tradewind.scheduler.ports.flows import Outbox
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.ports.peers import DueStream, Triggers
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.begin_due import BeginDue
from tradewind.scheduler.use_cases.definitions import PlannedRun
from tradewind.scheduler.use_cases.hand_over import HandOver
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.scheduler.use_cases.settle_outbox import RETRY_MS, SettleOutbox

_STORE_RETRY_MS = 1_000
_OUTBOX_AT_ONCE = 50

_log = structlog.get_logger(__name__)


def due_loop(
    triggers: Triggers,
    begin_due: BeginDue,
    hand_over: HandOver,
    ownership: OwnPartitions,
    background: Background,
    on_ends_listener: Callable[[], None],
) -> OwnedStream[DueFlow, DueStream]:
    """Return the loop that begins due cycles: it puts them on record, then hands them over and answers the triggers.

    A trigger that comes before its time while a cycle runs waits here until it is due. `on_ends_listener` is called
    when somebody has begun to listen to ends of cycles.
    """

    async def receive(stream: DueStream) -> tuple[list[DueFlow], list[int]]:
        due, ended, new_listener = await stream.receive()
        if new_listener:
            on_ends_listener()
        return due, ended

    async def work(stream: DueStream, due: list[DueFlow]) -> None:
        received_s = asyncio.get_running_loop().time()
        try:
            begun = await begin_due(due, ownership.epochs)
        except Exception as error:
            _log.warning("due_flows_not_begun", flows=len(due), error=error)
            await stream.answer([_retry(flow) for flow in due])
            return
        if begun.runs:
            background.begin(hand_over(begun.runs), "handing over of due cycles")
        await stream.answer(begun.answers)
        for _, early in groupby(sorted(begun.early, key=_due), _due):
            background.begin(retry_when_due(stream, list(early), received_s), "beginning of cycles on time")

    async def retry_when_due(stream: DueStream, flows: list[DueFlow], received_s: float) -> None:
        due_s = received_s + max(flow.planned_ms - flow.now_ms for flow in flows) / 1000
        await asyncio.sleep(due_s - asyncio.get_running_loop().time())
        await work(stream, [replace(flow, now_ms=flow.planned_ms) for flow in flows])

    return OwnedStream("due triggers", triggers.due, receive, work, ownership)


def _due(flow: DueFlow) -> int:
    return flow.planned_ms


def _retry(flow: DueFlow) -> DueAnswer:
    """Ask for a trigger that could not begin to come again: a planned time soon, an event with growing delays."""
    return DueAnswer(flow.token, retry_ms=_STORE_RETRY_MS if flow.event is None else -1, error="the store is away")


class BeginsWaiting(Protocol):
    """Begins cycles that wait for the end of another."""

    async def __call__(self, partitions: Collection[int], epochs: Epochs) -> list[PlannedRun]:
        """Begin the cycles that may begin now and return the runs to hand over."""
        ...


def queued_loop(
    begins: tuple[BeginsWaiting, ...],
    hand_over: HandOver,
    ownership: OwnPartitions,
    background: Background,
    alarm: Alarm,
    poll_s: float,
) -> OwnedWork:
    """Return the loop that begins cycles that waited for an end."""

    async def work(epochs: Epochs) -> float:
        for begin in begins:
            runs = await begin(list(epochs), epochs)
            if runs:
                background.begin(hand_over(runs), "handing over of cycles that waited")
        return math.inf

    return OwnedWork("queued_cycles_not_begun", work, ownership, alarm, poll_s)


def outbox_loop(
    outbox: Outbox, settle: SettleOutbox, ownership: OwnPartitions, alarm: Alarm, poll_s: float
) -> OwnedWork:
    """Return the loop that repeats unconfirmed messages to the trigger service.

    It is a safety net: the calls that change flows update the trigger service at once.
    """

    async def work(epochs: Epochs) -> float:
        checks = await outbox.check(list(epochs), _OUTBOX_AT_ONCE)
        left = False
        for check in checks.values():
            left = left or check.next_ms is not None
            for flow_id in check.due:
                await outbox.postpone(flow_id, RETRY_MS)
                left = not await settle.attempt(flow_id) or left
        return RETRY_MS / 1000 if left else math.inf

    return OwnedWork("outbox_not_settled", work, ownership, alarm, poll_s)
