"""Begins cycles when flows are due."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

import structlog

from tradewind.scheduler.domain.due import DueAnswer, DueFlow
from tradewind.scheduler.loops.owned_stream import OwnedStream
from tradewind.scheduler.ports.peers import DueStream, Triggers
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.begin_due import BeginDue
from tradewind.scheduler.use_cases.hand_over import HandOver
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.server.incidents import IncidentLog

_STORE_RETRY_MS = 1_000
_flow_id, _planned_ms = attrgetter("flow_id"), attrgetter("planned_ms")

_log = structlog.get_logger(__name__)


def due_loop(
    triggers: Triggers,
    begin_due: BeginDue,
    hand_over: HandOver,
    ownership: OwnPartitions,
    background: Background,
    on_ends_listener: Callable[[], None],
    on_opening: Callable[[], None],
) -> OwnedStream[DueFlow, DueStream]:
    """Return the loop that begins due cycles.

    `on_ends_listener` is called when somebody has begun to listen to ends of cycles; `on_opening` whenever the stream
    is opened, which the trigger service also ends when its store was away, and may have lost its latest writes.
    """

    def open_stream() -> DueStream:
        on_opening()
        return triggers.due()

    async def receive(stream: DueStream) -> tuple[list[DueFlow], list[int]]:
        due, ended, new_listener = await stream.receive()
        if new_listener:
            on_ends_listener()
        return due, ended

    work = _Work(begin_due, hand_over, ownership, background)
    return OwnedStream("due triggers", open_stream, receive, work, ownership)


class _Work:
    """Puts due cycles on record, then hands them over and answers the triggers.

    A trigger that comes before its time while a cycle runs waits here until it is due. One whose flow takes long to
    parse begins by itself, and whatever else comes for that flow waits behind it.
    """

    def __init__(
        self, begin_due: BeginDue, hand_over: HandOver, ownership: OwnPartitions, background: Background
    ) -> None:
        self._begin_due = begin_due
        self._hand_over = hand_over
        self._ownership = ownership
        self._background = background
        self._failing = IncidentLog(_log, "due_flows_not_begun", "due_flows_begun_again")
        self._late: dict[tuple[DueStream, str], list[tuple[list[DueFlow], float]]] = {}
        """What has come of flows that begin by themselves, and when, as far as it has not been taken up."""

    async def __call__(self, stream: DueStream, due: list[DueFlow]) -> None:
        received_s, late = asyncio.get_running_loop().time(), self._late
        behind = [flow for flow in due if (stream, flow.flow_id) in late] if late else []
        if behind:
            due = [flow for flow in due if (stream, flow.flow_id) not in late]
            self._begin_later(stream, behind, received_s)
        if due:
            await self._begin(stream, due, received_s, wait=False)

    def _begin_later(self, stream: DueStream, flows: list[DueFlow], received_s: float) -> None:
        late = self._late
        for flow_id, of_one in groupby(sorted(flows, key=_flow_id), _flow_id):
            if (stream, flow_id) not in late:
                late[stream, flow_id] = []
                self._background.begin(self._begin_in_order(stream, flow_id), "beginning of cycles of large flows")
            late[stream, flow_id].append((list(of_one), received_s))

    async def _begin_in_order(self, stream: DueStream, flow_id: str) -> None:
        waiting = self._late[stream, flow_id]
        try:
            while waiting:
                await self._begin(stream, *waiting.pop(0), wait=True)
        finally:
            del self._late[stream, flow_id]

    async def _begin(self, stream: DueStream, due: list[DueFlow], received_s: float, *, wait: bool) -> None:
        try:
            begun = await self._begin_due(due, self._ownership.epochs, wait=wait)
        except Exception as error:
            self._failing.note_error(error, flows=len(due))
            await stream.answer([_retry(flow) for flow in due])
            return
        # If the newer owner does not know that it is, nobody else would ever tell.
        self._ownership.lose(begun.lost, "a cycle was refused")
        if begun.runs:
            self._background.begin(self._hand_over(begun.runs), "handing over of due cycles")
        await stream.answer(begun.answers)
        self._begin_later(stream, begun.late, received_s)
        for _, early in groupby(sorted(begun.early, key=_planned_ms), _planned_ms):
            self._background.begin(self._retry_when_due(stream, list(early), received_s), "beginning of cycles on time")

    async def _retry_when_due(self, stream: DueStream, flows: list[DueFlow], received_s: float) -> None:
        due_s = received_s + max(flow.planned_ms - flow.now_ms for flow in flows) / 1000
        await asyncio.sleep(due_s - asyncio.get_running_loop().time())
        await self(stream, [replace(flow, now_ms=flow.planned_ms) for flow in flows])


def _retry(flow: DueFlow) -> DueAnswer:
    """Ask for a trigger that could not begin to come again: a planned time soon, an event with growing delays."""
    return DueAnswer(flow.token, retry_ms=_STORE_RETRY_MS if flow.event is None else -1, error="the store is away")
