"""Begins, reads and cancels backfills of flows."""

import asyncio
import math
from dataclasses import replace

from tradewind.scheduler.domain.backfill import (
    MAX_ACTIVE,
    MAX_TIMES,
    Backfill,
    BackfillDraft,
    BackfillOutcome,
    PastTimes,
    past_times,
)
from tradewind.scheduler.domain.flow_record import FlowRecord, RememberedRequest
from tradewind.scheduler.ports.backfills import Backfills
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.begin_backfilled import BeginBackfilled
from tradewind.scheduler.use_cases.faults import (
    backfill_not_found,
    flow_deleting,
    flow_not_found,
    request_id_reused,
    too_many_backfills,
)
from tradewind.scheduler.use_cases.hand_over import HandOver
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.server.clock import Clock
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.reasons import iso


class BackfillFlows:
    """The owner of the partition carries out the backfills on record; their first cycles begin here, at once."""

    def __init__(
        self,
        read: ReadFlows,
        backfills: Backfills,
        begin: BeginBackfilled,
        hand_over: HandOver,
        background: Background,
        clock: Clock,
    ) -> None:
        self._read = read
        self._backfills = backfills
        self._begin = begin
        self._hand_over = hand_over
        self._background = background
        self._clock = clock

    async def create(
        self, flow_id: str, from_ms: int, to_ms: int, max_running: int, by: str, request: RememberedRequest | None
    ) -> Backfill:
        """Run a cycle for each planned time of a flow from `from_ms` on and before `to_ms`, both in the past.

        Raises NotFound, InvalidInput for a range with no planned times or more than 10 000, FailedPrecondition for a
        flow that is being deleted, Exhausted when too many of its backfills are under way, Conflict for a request_id
        that was used for something else.
        """
        flow = await self._read.flow(flow_id)
        draft = await self._draft(flow, from_ms, to_ms, max_running, by)
        outcome, backfill_id = await self._backfills.create(replace(draft, request=request))
        match outcome:
            case BackfillOutcome.NOT_FOUND:
                raise flow_not_found(flow_id)
            case BackfillOutcome.DELETING:
                raise flow_deleting(flow_id)
            case BackfillOutcome.FULL:
                raise too_many_backfills(flow_id, MAX_ACTIVE)
            case BackfillOutcome.REUSED:
                raise request_id_reused(request.request_id if request else "")
            case BackfillOutcome.CREATED:
                self._background.begin(self._move_on(flow_id, backfill_id), "first cycles of a backfill")
        return await self.get(flow_id, backfill_id)

    async def get(self, flow_id: str, backfill_id: int) -> Backfill:
        """Return a backfill. Raises NotFound, Unreadable."""
        backfill = await self._backfills.load(flow_id, backfill_id)
        if backfill is None:
            await self._read.flow(flow_id)
            raise backfill_not_found(flow_id, backfill_id)
        return backfill

    async def page(self, flow_id: str, below: int, limit: int) -> tuple[list[Backfill], int]:
        """Return up to `limit` backfills with ids below `below` (0: any), newest first, and the next page's `below`.

        The latter is 0 on the last page. Raises NotFound.
        """
        await self._read.flow(flow_id)
        ids = [each for each in await self._backfills.ids(flow_id) if not below or each < below]
        found = await self._backfills.find(flow_id, ids[:limit])
        return [each for each in found if each is not None], ids[limit - 1] if len(ids) > limit else 0

    async def cancel(self, flow_id: str, backfill_id: int, by: str, reason: str) -> Backfill:
        """Begin no more cycles of a backfill; running ones go on. An ended backfill stays as it is. Raises NotFound."""
        await self.get(flow_id, backfill_id)
        await self._backfills.cancel(flow_id, backfill_id, f'cancelled by "{by}"' + (f": {reason}" if reason else ""))
        return await self.get(flow_id, backfill_id)

    async def _draft(self, flow: FlowRecord, from_ms: int, to_ms: int, max_running: int, by: str) -> BackfillDraft:
        faults: list[Violation] = []
        if to_ms > self._clock.now_ms():
            faults.append(Violation("end", "lies in the future, where the schedule begins cycles by itself"))
        if flow.schedule.on:
            events = flow.schedule.on.description
            message = f"the flow begins on {events}, so it has no planned times; run it once for each cycle instead"
            faults.append(Violation("flow_id", message))
        elif flow.schedule.once:
            message = "the schedule of the flow has no repeating times; run it once for each cycle instead"
            faults.append(Violation("flow_id", message))
        if faults:
            raise InvalidInput(faults)
        # In a thread: the times of a calendar are counted one by one.
        times = await asyncio.to_thread(past_times, flow.schedule, flow.anchor_ms, from_ms, to_ms)
        if times is None:
            raise InvalidInput([Violation("start", "no times are planned between start and end")])
        if times.count > MAX_TIMES or not times.exact:
            raise InvalidInput([Violation("end", _too_many(times))])
        return BackfillDraft(
            flow.flow_id,
            from_ms,
            to_ms,
            times.first_ms,
            times.last_ms,
            times.count,
            max_running,
            times.schedule,
            times.anchor_ms,
            by,
        )

    async def _move_on(self, flow_id: str, backfill_id: int) -> None:
        runs = await self._begin.one(flow_id, backfill_id)
        if runs:
            await self._hand_over(runs)


def _too_many(times: PastTimes) -> str:
    """Say how to split a range with too many times.

    For a calendar the text does not say where the first 10 000 times end: finding out takes too long.
    """
    count, into = f"more than {MAX_TIMES}", "several"
    if times.exact:
        count, parts = f"{times.count}", math.ceil(times.count / MAX_TIMES)
        into = f"{parts}, the first with end {iso(times.first_ms + MAX_TIMES * times.schedule.interval_ms)}"
    split = f"split it into {into}, each starting where the previous one ends"
    return f"{count} times are planned between start and end; at most {MAX_TIMES} in one backfill: {split}"
