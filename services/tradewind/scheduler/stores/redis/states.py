"""Chain states in Redis."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from tradewind.scheduler.domain.chain_state import ChainState, UpdateOutcome, UpdateResult
from tradewind.scheduler.domain.ended_run import MAX_KEPT
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import FLOW_AFTER, RunUpdate
from tradewind.scheduler.metrics import CONFLICTS
from tradewind.scheduler.ports.owning import NOT_OWNER, Epochs
from tradewind.scheduler.stores.redis.fields import fields_of
from tradewind.scheduler.stores.redis.run_codec import large_fields, state_of, update_fields
from tradewind.scheduler.stores.redis.scripts import RETENTION_MS, Replies, Scripted, script
from tradewind.server.faults import Unreadable
from tradewind.server.reading import UnreadableLog, reading
from tradewind.server.redis.records import read_each


class _NotUpdated(msgspec.Struct, array_like=True):
    outcome: UpdateOutcome
    version: int


_UPDATE = script("update_runs", Replies[int | _NotUpdated])

_OVERTAKEN = UpdateResult(UpdateOutcome.OVERTAKEN)
_FIELDS_AT_ONCE = 4000
"""How many names and values are converted before others have a turn: some 3 ms of work. A run may have over 2000."""


class RedisStates:
    """Implements ChainStateRepository."""

    def __init__(self, scripted: Scripted, publishes_ends: Callable[[], bool], settle_ms: int) -> None:
        self._scripted = scripted
        self._publishes_ends = publishes_ends
        self._settle_ms = settle_ms
        self._client = scripted.client
        self._keys = scripted.keys
        self._unreadable = UnreadableLog(__name__)

    async def load(self, run: RunName) -> ChainState | None:
        (state,) = await self._read([run])
        if isinstance(state, Unreadable):
            raise state
        return state

    async def load_many(self, runs: Sequence[RunName]) -> list[ChainState | None]:
        states: list[ChainState | None] = []
        for state in await self._read(runs):
            if isinstance(state, Unreadable):
                self._unreadable.note(state)
                state = None
            states.append(state)
        return states

    async def _read(self, runs: Sequence[RunName]) -> list[ChainState | Unreadable | None]:
        keys = [self._keys.run(*run) for run in runs]
        records = await read_each(self._client, keys, "HGETALL")
        states: list[ChainState | Unreadable | None] = []
        fields = 0
        for run, key, record in zip(runs, keys, records, strict=True):
            try:
                with reading(key, record):
                    states.append(state_of(run, fields_of(record)) if record else None)
                    fields += len(record)
            except Unreadable as error:
                states.append(error)
            if fields > _FIELDS_AT_ONCE:
                await asyncio.sleep(0)
                fields = 0
        return states

    async def update_many(self, updates: Sequence[RunUpdate], epochs: Epochs = NOT_OWNER) -> list[UpdateResult]:
        items = [_update_item(update) for update in updates]
        flow_ids = [update.state.name.flow_id for update in updates]
        options = {"publish_ends": self._publishes_ends(), "max_ends": MAX_KEPT, "settle": self._settle_ms}
        replies = await self._scripted.call_in_groups(_UPDATE, items, flow_ids, epochs, **options)
        results = [
            _OVERTAKEN if reply is None else _result(update, *reply)
            for update, reply in zip(updates, replies, strict=True)
        ]
        CONFLICTS.inc([result.outcome for result in results].count(UpdateOutcome.CONFLICT))
        return results


def _result(update: RunUpdate, at_ms: int, reply: int | _NotUpdated) -> UpdateResult:
    if not isinstance(reply, int):
        return UpdateResult(reply.outcome, reply.version)
    end_ms = max(at_ms, update.state.facts.start_ms) if update.ending else 0
    return UpdateResult(UpdateOutcome.OK, update.state.version + 1, end_ms, reply)


def _update_item(update: RunUpdate) -> tuple[object, ...]:
    state, ending = update.state, update.ending
    facts = state.facts
    return (
        state.name.flow_id,
        f"{state.name.cycle}:{state.name.run}",
        state.name.cycle,
        state.name.run,
        facts.run_id,
        facts.start_ms,
        state.version,
        update_fields(state, update.fields),
        update.check_in_ms,
        ending or "",
        facts.keep_cycles,
        facts.keep_for_ms or RETENTION_MS,
        FLOW_AFTER[ending] if ending else "",
        _rare_update_fields(update),
    )


def _rare_update_fields(update: RunUpdate) -> tuple[object, ...] | bool:
    facts, log, large = update.state.facts, update.log, large_fields(update.state, update.fields)
    if not facts.backfill_id and facts.parent is None and not large and log is None:
        return False
    rare = (facts.backfill_id, facts.parent is not None, large)
    return rare if log is None else (*rare, log.level, log.text)
