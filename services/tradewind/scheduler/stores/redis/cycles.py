"""Cycles in Redis: their beginning, and which are on record."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import astuple
from functools import partial

import msgspec
from msgspec import structs

from tradewind.scheduler.domain.beginning import BeginAnswer, BeginOutcome, BeginRequest, RerunRequest, begun_state
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_outline import CycleOutline
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.cycles import Tidied
from tradewind.scheduler.ports.owning import NOT_OWNER, Epochs
from tradewind.scheduler.stores.redis.firing_codec import event_mark
from tradewind.scheduler.stores.redis.ranks import OPEN, RUNS, STOPPING, rank
from tradewind.scheduler.stores.redis.run_codec import (
    Field,
    as_mapping,
    facts_text,
    facts_text_of,
    parent_text,
    rerun_text,
    state_after,
)
from tradewind.scheduler.stores.redis.scripts import Found, Replies, Scripted, named_first, request_args, script
from tradewind.scheduler.stores.redis.states import RedisStates
from tradewind.server.faults import Unreadable
from tradewind.server.partitions import partition_of
from tradewind.server.reading import UnreadableLog, reading
from tradewind.server.redis.records import ANOTHER_TYPE, read_each, read_in_order


class _Begun(msgspec.Struct, array_like=True):
    outcome: BeginOutcome
    revision: int
    cycle: int
    start: int
    planned: int
    next_at: int
    inputs: str = ""
    run: int = 0
    run_id: str = ""
    stopping: bool = False
    stop: tuple[Field, ...] = ()


_BEGIN = script("begin_cycles", Replies[int | _Begun])
_RERUN = script("begin_rerun", _Begun)
_TIDY = script("tidy_flows", tuple[str, bool, int, int, list[tuple[str, str]]])
_OUTLINE = script("outline_runs", list[tuple[str, str, str] | bool])
_TIDIED_FLOWS, _TIDIED_RUNS = 50, 50
"""The most flows to tidy in one step, and how many runs removed from one of them end the step."""

_OVERTAKEN = BeginAnswer(BeginOutcome.OVERTAKEN)


class RedisCycles:
    """Implements CycleRecords."""

    def __init__(self, scripted: Scripted, states: RedisStates, settle_ms: int) -> None:
        self._scripted = scripted
        self._states = states
        self._settle_ms = settle_ms
        self._client = scripted.client
        self._keys = scripted.keys
        self._unreadable = UnreadableLog(__name__)

    async def begin(self, requests: Sequence[BeginRequest], epochs: Epochs = NOT_OWNER) -> list[BeginAnswer]:
        items = [_begin_item(request) for request in requests]
        flow_ids = [request.shape.flow_id for request in requests]
        replies = await self._scripted.call_in_groups(_BEGIN, items, flow_ids, epochs)
        return [
            _OVERTAKEN if reply is None else _answer(request, *reply)
            for request, reply in zip(requests, replies, strict=True)
        ]

    async def begin_rerun(self, request: RerunRequest) -> BeginAnswer:
        source = request.source.name
        facts = request.first_state(0).facts
        reply = await self._scripted.call_for_flow(
            _RERUN,
            source.flow_id,
            self._keys.run(*source),
            cycle=source.cycle,
            source=source.run,
            source_id=request.rerun.source_id,
            run_id=request.run_id,
            planned=facts.planned_ms,
            timeout=request.timeout_ms,
            check_in=request.check_in_ms,
            facts=facts_text_of(facts, request.request),
            rerun=rerun_text(request.rerun),
            memory=request.inputs_json,
            **request_args(request.request),
        )
        run = RunName(source.flow_id, reply.cycle, reply.run) if reply.cycle >= 0 else None
        state = request.first_state(reply.start) if reply.outcome is BeginOutcome.BEGUN else None
        return BeginAnswer(reply.outcome, run, reply.run_id, 0, facts.revision if state else 0, state)

    async def first_answer(self, request: RememberedRequest) -> BeginAnswer | None:
        key = self._keys.request(request.flow_id, request.name)
        (first,) = await read_each(self._client, [key], "GET")
        if first is None:
            return None
        with reading(key, first):
            payload, *answer = first.decode().split()
            if payload != request.payload or len(answer) != 3:
                return BeginAnswer(BeginOutcome.REUSED)
            run = RunName(request.flow_id, int(answer[0]), int(answer[1]))
            return BeginAnswer(BeginOutcome.DUPLICATE, run, answer[2])

    async def tidy(self, partition: int, after: str, epoch: int) -> Tidied:
        bounds = {"flows": _TIDIED_FLOWS, "most": _TIDIED_RUNS, "settle": self._settle_ms}
        reply = await self._scripted.call_for_partition(_TIDY, partition, epoch=epoch, after=after, **bounds)
        self._scripted.note_unreadable(reply[4])
        return Tidied(*reply[:4])

    async def begun_flows(self, flow_ids: Sequence[str]) -> list[str]:
        found = await read_each(self._client, list(map(self._keys.cycles, flow_ids)), "EXISTS")
        return [flow_id for flow_id, has_begun in zip(flow_ids, found, strict=True) if has_begun]

    async def newest(self, flow_id: str, below: RunName | None, limit: int) -> list[ChainState]:
        return await self._newest(flow_id, below, limit, self._states.load_many)

    async def outlines(self, flow_id: str, below: RunName | None, limit: int) -> list[CycleOutline]:
        return await self._newest(flow_id, below, limit, self._outlines_of)

    async def _newest(
        self,
        flow_id: str,
        below: RunName | None,
        limit: int,
        read: Callable[[Sequence[RunName]], Awaitable[Sequence[Found | None]]],
    ) -> list[Found]:
        found: list[Found] = []
        highest = STOPPING - 1 if below is None else rank(below) - 1
        while len(found) < limit:
            runs = await self._highest(flow_id, 0, highest, limit)
            if not runs:
                break
            found += [each for each in await read(runs) if each is not None]
            highest = rank(runs[-1]) - 1
        return found[:limit]

    async def _outlines_of(self, runs: Sequence[RunName]) -> list[CycleOutline | None]:
        """Return outlines of runs of one flow, None for those that are not on record or, as is logged, unreadable."""
        flow_id = runs[0].flow_id
        names = [(run.cycle, run.run) for run in runs]
        rows = await self._scripted.call_for_partition(_OUTLINE, partition_of(flow_id), flow_id=flow_id, runs=names)
        return list(map(self._outline, runs, rows))

    def _outline(self, run: RunName, row: tuple[str, str, str] | bool) -> CycleOutline | None:
        key = self._keys.run(*run)
        try:
            if isinstance(row, bool):
                raise Unreadable(key, ANOTHER_TYPE)
            with reading(key):
                status, start_time, stop_by = row
                if not start_time:
                    return None
                return CycleOutline(run, CycleStatus(status or CycleStatus.RUNNING), int(start_time), stop_by)
        except Unreadable as error:
            self._unreadable.note(error)
            return None

    async def newest_open(self, flow_id: str, below: RunName) -> RunName | None:
        return next(iter(await self._highest(flow_id, 0, rank(below) - 1, 1, (OPEN, STOPPING))), None)

    async def latest_run(self, flow_id: str, cycle: int) -> RunName | None:
        first = rank(RunName(flow_id, cycle))
        return next(iter(await self._highest(flow_id, first, first + RUNS - 1, 1)), None)

    async def _highest(
        self, flow_id: str, lowest: int, highest: int, limit: int, offsets: Sequence[int] = (OPEN, STOPPING, 0)
    ) -> list[RunName]:
        """Return the runs of the highest ranks within bounds, highest first.

        It reads running, stopping and ended runs in that order: a run passes through them in the same order, so that
        none is missed.
        """
        pipeline, cycles = self._client.pipeline(transaction=False), self._keys.cycles(flow_id)
        for offset in offsets:
            bounds = offset + highest, offset + lowest
            pipeline.execute_command("ZREVRANGEBYSCORE", cycles, *bounds, "LIMIT", 0, limit)

        async def read_on(offset: int, at: int) -> list[bytes]:
            bounds = offset + highest, offset + lowest
            return list(await self._client.execute_command("ZREVRANGEBYSCORE", cycles, *bounds, "LIMIT", at, limit))

        runs: set[RunName] = set()
        for offset, names in zip(offsets, await read_in_order(cycles, pipeline), strict=True):
            runs |= set(
                await named_first(names, limit, partial(self._scripted.runs_of, flow_id), partial(read_on, offset))
            )
        return sorted(runs, reverse=True)[:limit]


def _begin_item(request: BeginRequest) -> tuple[object, ...]:
    shape, remembered = request.shape, request.request
    return (
        shape.flow_id,
        request.run_id,
        shape.revision,
        shape.digest,
        request.planned_ms,
        request.check_in_ms,
        shape.timeout_ms,
        facts_text(request),
        request.inputs_json,
        remembered.name if remembered else "",
        remembered.payload if remembered else "",
        remembered.lifetime_ms if remembered else 0,
        _rare_begin_fields(request),
    )


def _rare_begin_fields(request: BeginRequest) -> tuple[object, ...] | bool:
    backfill = request.backfill
    if request.parent is None and backfill is None and request.replaces < 0 and not request.at_least:
        return (_plan(request),) if request.scheduled else False
    return (
        _plan(request),
        request.parent is not None and parent_text(request.parent),
        backfill is not None and (backfill.backfill_id, backfill.following_ms),
        request.replaces,
        request.at_least,
    )


def _plan(request: BeginRequest) -> tuple[object, ...] | bool:
    if not request.scheduled:
        return False
    schedule, missed, event = request.shape.schedule, request.missed, request.event
    plan = (
        request.queued,
        request.due_ms,
        request.next_ms,
        missed is not None and astuple(missed),
        schedule.max_cycles,
        schedule.once,
        request.schedule_epoch,
        request.ahead,
    )
    return plan if event is None else (*plan, (event_mark(event.event_id), event.outcome.value, event.reason))


def _answer(request: BeginRequest, at_ms: int, reply: int | _Begun) -> BeginAnswer:
    if isinstance(reply, int):
        begun = RunName(request.shape.flow_id, reply)
        state = begun_state(request, begun, at_ms, request.planned_ms)
        return BeginAnswer(BeginOutcome.BEGUN, begun, request.run_id, 0, request.shape.revision, state)
    run = RunName(request.shape.flow_id, reply.cycle, reply.run) if reply.cycle >= 0 else None
    if reply.outcome is not BeginOutcome.BEGUN or run is None:
        return BeginAnswer(reply.outcome, run, reply.run_id, reply.next_at, reply.revision, None, reply.stopping)
    if request.queued:
        request = structs.replace(request, run_id=reply.run_id, inputs_json=reply.inputs or request.inputs_json)
    state = begun_state(request, run, reply.start, reply.planned)
    if reply.stop:
        state = structs.replace(state, stop=state_after(state, as_mapping(reply.stop)).stop)
    return BeginAnswer(reply.outcome, run, request.run_id, reply.next_at, reply.revision, state)
