"""Begins cycles when the trigger service says that flows are due or one waited for has ended; settles the outbox."""

import asyncio
import math
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import groupby
from typing import Protocol

import structlog

from tradewind.scheduler.domain.due import DueAnswer, DueFlow
from tradewind.scheduler.loops.owned_stream import OwnedStream
from tradewind.scheduler.ports.flows import Outbox
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.ports.peers import DueStream, Triggers
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.begin_due import BeginDue
from tradewind.scheduler.use_cases.hand_over import HandOver, PlannedRun
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.scheduler.use_cases.settle_outbox import RETRY_MS, SettleOutbox

_STORE_RETRY_MS = 1_000
_OUTBOX_AT_ONCE = 50

_log = structlog.get_logger(__name__)


def due_loop(
    triggers: Triggers,
    begin_due: BeginDue,
    hand_over: HandOver,
    own: OwnPartitions,
    background: Background,
    ends_listened: Callable[[], None],
) -> OwnedStream[DueFlow, DueStream]:
    """Return the loop that begins what is due: begun on record, then acknowledged, then handed over.

    What is delivered before its time while a cycle runs waits here until it is due. `ends_listened` is called when
    somebody has begun to listen to ends of cycles.
    """

    async def receive(stream: DueStream) -> tuple[list[DueFlow], list[int]]:
        due, ended, listened = await stream.receive()
        if listened:
            ends_listened()
        return due, ended

    async def work(stream: DueStream, due: list[DueFlow]) -> None:
        taken_s = asyncio.get_running_loop().time()
        try:
            begun = await begin_due(due, own.epochs)
        except Exception as error:
            _log.warning("due_flows_not_begun", flows=len(due), error=error)
            await stream.answer([_again(flow) for flow in due])
            return
        if begun.runs:
            background.begin(hand_over(begun.runs), "handing over of due cycles")
        await stream.answer(begun.answers)
        for _, early in groupby(sorted(begun.early, key=_due), _due):
            background.begin(come_back(stream, list(early), taken_s), "beginning of cycles in their time")

    async def come_back(stream: DueStream, flows: list[DueFlow], taken_s: float) -> None:
        due_s = taken_s + max(flow.planned_ms - flow.now_ms for flow in flows) / 1000
        await asyncio.sleep(due_s - asyncio.get_running_loop().time())
        await work(stream, [replace(flow, now_ms=flow.planned_ms) for flow in flows])

    return OwnedStream("due triggers", triggers.due, receive, work, own)


def _due(flow: DueFlow) -> int:
    return flow.planned_ms


def _again(flow: DueFlow) -> DueAnswer:
    """Ask for what could not begin once more: a time soon, for the next is as good; an event with growing patience."""
    return DueAnswer(flow.token, retry_ms=_STORE_RETRY_MS if flow.event is None else -1, error="the store is away")


class BeginsWaiting(Protocol):
    """Begins what waits for the end of a cycle."""

    async def __call__(self, partitions: Collection[int], epochs: Epochs) -> list[PlannedRun]:
        """Begin what may begin now and return the runs to hand over."""
        ...


class QueuedLoop:
    """Begins what waited when an end rings the alarm, and looks every `look_s` in case nobody did."""

    def __init__(
        self,
        begins: tuple[BeginsWaiting, ...],
        hand_over: HandOver,
        own: OwnPartitions,
        background: Background,
        alarm: Alarm,
        look_s: float,
    ) -> None:
        self._begins = begins
        self._hand_over = hand_over
        self._own = own
        self._background = background
        self._alarm = alarm
        self._look_s = look_s
        own.on_change(lambda: alarm.ring_in(0))

    async def run(self) -> None:
        """Go on for ever."""
        while True:
            wait_s = math.inf
            try:
                for begin in self._begins:
                    runs = await begin(list(self._own.epochs), self._own.epochs)
                    if runs:
                        self._background.begin(self._hand_over(runs), "handing over of cycles that waited")
            except Exception as error:
                _log.warning("queued_cycles_not_begun", error=error)
                wait_s = _STORE_RETRY_MS / 1000
            await self._alarm.rest(self._look_s, wait_s)


class OutboxLoop:
    """Repeats what was not confirmed. The call that changed a flow does it at once: here is the net below, which looks
    every `look_s`."""

    def __init__(self, outbox: Outbox, settle: SettleOutbox, own: OwnPartitions, alarm: Alarm, look_s: float) -> None:
        self._outbox = outbox
        self._settle = settle
        self._own = own
        self._alarm = alarm
        self._look_s = look_s
        own.on_change(lambda: alarm.ring_in(0))

    async def run(self) -> None:
        """Go on for ever."""
        while True:
            wait_s = math.inf
            try:
                if await self._work():
                    wait_s = RETRY_MS / 1000
            except Exception as error:
                _log.warning("outbox_not_settled", error=error)
            await self._alarm.rest(self._look_s, wait_s)

    async def _work(self) -> bool:
        """Settle what is due; say whether there is anything left."""
        checks = await self._outbox.check(list(self._own.epochs), _OUTBOX_AT_ONCE)
        left = False
        for check in checks.values():
            left = left or check.next_ms is not None
            for flow_id in check.due:
                await self._outbox.postpone(flow_id, RETRY_MS)
                left = not await self._settle.attempt(flow_id) or left
        return left
