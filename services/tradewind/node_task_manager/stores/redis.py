"""Node tasks of one shard in Redis: one script per change, or several when a caller brings too much for one."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from tradewind.node_task_manager.domain.batch import Deletion
from tradewind.node_task_manager.domain.component import Release, RunSubmission
from tradewind.node_task_manager.domain.fan_out import INLINE_BYTES, FanOutStep
from tradewind.node_task_manager.domain.limits import MAX_AHEAD_MS, Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.sub_flow import SubFlowReport
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.domain.waiting import MAX_KEPT, MAX_KEPT_OF_RUN, MAX_REQUESTS, Signal
from tradewind.node_task_manager.ports.node_tasks import Cleaned, Purge, Renewal, Session, Submitted
from tradewind.node_task_manager.ports.reading import Line, Progress
from tradewind.node_task_manager.ports.work import Effects, Held, Outcome, Postponed, Vacancy, by_kind, in_pieces
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.redis.client import Client
from tradewind.server.redis.script import Script

Item = TypeVar("Item")
Reply = TypeVar("Reply")


class _Room(msgspec.Struct, frozen=True):
    """A vacancy without its node types."""

    worker_id: str
    session: int
    credits: int
    capacity: int


@dataclass(frozen=True, slots=True)
class _Opened:
    """A Session; `same` says whether the incarnation is unchanged, `more` whether there is more to give back."""

    session: int
    lost: tuple[str, ...]
    effects: Effects
    same: bool
    more: bool


@dataclass(frozen=True, slots=True)
class _Step:
    """The effects of a bounded step; `more` says whether there is more to do."""

    effects: Effects
    more: bool


_FAN_OUT = Script(__name__, "fan_out_tasks", Effects)
_CLAIM = Script(__name__, "claim_tasks", Effects)
_SUBMIT = Script(__name__, "submit_runs", Submitted)
_COMPLETE = Script(__name__, "complete_tasks", Effects)
_OPEN = Script(__name__, "open_session", _Opened)
_RENEW = Script(__name__, "renew_leases", Renewal)
_GIVE_BACK = Script(__name__, "give_back_tasks", _Step)
_BEGIN = Script(__name__, "begin_process", _Step)
_PASS_ON = Script(__name__, "pass_on", Effects)
_REAP = Script(__name__, "reap_leases", Effects)
_STOP = Script(__name__, "stop_components", Effects)
_RELEASE = Script(__name__, "release_components", Effects)
_TERMINATE = Script(__name__, "terminate_task", Effects)
_DELETE_BATCH = Script(__name__, "delete_batch", tuple[Deletion, int])
_UNLIST_ITEMS = Script(__name__, "unlist_items", int)
_PURGE = Script(__name__, "purge_flow", Purge)
_REOPEN = Script(__name__, "reopen_limits", _Step)
_CLEAN = Script(__name__, "clean", Cleaned)
_LEAVE_CLEANING = Script(__name__, "leave_cleaning", bool)
_RECOUNT = Script(__name__, "recount_slots", str)
_RECORD = Script(__name__, "record_progress", int)
_POSTPONE = Script(__name__, "postpone_tasks", Effects)
_HASTEN = Script(__name__, "hasten_tasks", Effects)
_SIGNAL = Script(__name__, "signal_task", Effects)
_REPORT_SUB_FLOWS = Script(__name__, "report_sub_flows", Effects)
_AT_ONCE = 500
"""How many components, outcomes or tokens one script takes."""
_FIRST_RARE_FIELD = RunSubmission.__struct_fields__.index("keep_cycles")
_RARE_DEFAULTS = RunSubmission.__struct_defaults__[_FIRST_RARE_FIELD - len(RunSubmission.__struct_fields__) :]
"""The defaults of the rarely used fields of a submission, which begin at `keep_cycles`."""


class RedisNodeTaskStore:
    """A NodeTaskStore; `clock` returns 0 for the store's own time."""

    def __init__(self, client: Client, keys: Keys, limits: Limits, clock: Callable[[], int]) -> None:
        self._client = client
        self._keys = keys
        self._clock = clock
        self._any_key = [keys.inflight()]
        self._fixed = {**asdict(limits), "max_ahead_ms": MAX_AHEAD_MS, "inline_bytes": INLINE_BYTES}
        self._bounded = False
        self._limits = _as_text(self._fixed)

    def configure(self, config: SystemConfig) -> None:
        bounds: dict[str, Any] = {
            "running": config.max_running,
            "user_running": config.max_running_per_user,
            "flow_running": config.max_running_per_flow,
            "type_running": dict(config.max_running_per_node_type),
            "adhoc": config.max_concurrent_tasks,
            "type_rates": {name: (rate.interval_us, rate.period_us) for name, rate in config.rates.items()},
        }
        given = {name: bound for name, bound in bounds.items() if bound}
        self._bounded = config.bounded
        if config.bounded:
            given["bounded"] = True
        if config.user_weights:
            given["weighted"] = True
        self._limits = _as_text(self._fixed | given)

    def run_script(
        self, script: Script[Reply], more: Mapping[str, Any], vacancies: Sequence[Vacancy] = ()
    ) -> Awaitable[Reply]:
        """Run a script of the shard with the args that all of them take, and `more`."""
        args = {
            "base": self._keys.base,
            "now": self._clock(),
            "limits": self._limits,
            "nonce": os.urandom(6).hex(),
            "vacancies": _kinds(vacancies),
            **more,
        }
        return script(self._client, self._any_key, args)

    async def _repeat(self, script: Script[_Step], more: Mapping[str, Any]) -> list[Effects]:
        """Run a script until it has nothing left to do."""
        steps = [await self.run_script(script, more)]
        while steps[-1].more:
            steps.append(await self.run_script(script, more))
        return [step.effects for step in steps]

    async def submit(self, runs: Sequence[RunSubmission], vacancies: Sequence[Vacancy] = ()) -> Submitted:
        done: list[Submitted] = []
        pieces = _pieces(runs, lambda run: len(run.components))
        for at, piece in enumerate(pieces, 1):
            more = {"count": len(piece), "runs": _flat_runs(piece)}
            done.append(await self.run_script(_SUBMIT, more, vacancies if at == len(pieces) else ()))
        if len(done) == 1:
            return done[0]
        results = tuple(result for each in done for result in each.results)
        return Submitted(results, _joined([each.effects for each in done]))

    async def complete(self, outcomes: Sequence[Outcome], vacancies: Sequence[Vacancy] = ()) -> Effects:
        done: list[Effects] = []
        pieces = [*in_pieces(outcomes, _AT_ONCE)]
        for at, piece in enumerate(pieces, 1):
            more: dict[str, Any] = {"count": len(piece), "outcomes": _flat_outcomes(piece)}
            if eager := {place: outcome.eager for place, outcome in enumerate(piece, 1) if outcome.eager}:
                more["eager"] = eager
            done.append(await self.run_script(_COMPLETE, more, vacancies if at == len(pieces) else ()))
        return _joined(done)

    async def fan_out(self, steps: Sequence[FanOutStep], vacancies: Sequence[Vacancy] = ()) -> Effects:
        done: list[Effects] = []
        for at, step in enumerate(steps, 1):
            done.append(await self.run_script(_FAN_OUT, {"step": step}, vacancies if at == len(steps) else ()))
        return _joined(done)

    async def claim(self, vacancies: Sequence[Vacancy] = ()) -> Effects:
        return await self.run_script(_CLAIM, {}, vacancies)

    async def open_session(self, worker_id: str, incarnation: str, held: Sequence[Held]) -> Session:
        first, rest = held[:_AT_ONCE], held[_AT_ONCE:]
        kept = [token.task_id for token in rest]
        more = {"worker_id": worker_id, "incarnation": incarnation, "held": first, "kept": kept}
        opened = await self.run_script(_OPEN, more)
        lost, done = list(opened.lost), [opened.effects]
        for piece in _pieces(rest) if rest else ():
            renewal = await self._renew(worker_id, opened.session, piece, {"back": True})
            lost += [nonce for nonce, _ in renewal.lost]
            done.append(renewal.effects)
        if opened.more:
            kept = [token.task_id for token in held if token.nonce not in set(lost)]
            rest_of = {"worker_id": worker_id, "session": opened.session, "kept": kept, "lost": not opened.same}
            done += await self._repeat(_GIVE_BACK, rest_of)
        return Session(opened.session, tuple(lost), _joined(done))

    async def begin_process(self, worker_id: str, incarnation: str) -> Effects:
        return _joined(await self._repeat(_BEGIN, {"worker_id": worker_id, "incarnation": incarnation}))

    async def renew(self, worker_id: str, session: int, held: Sequence[Held]) -> Renewal:
        *firsts, last = _pieces(held)
        done = [await self._renew(worker_id, session, piece, {}) for piece in firsts]
        named = [token.task_id for piece in firsts for token in piece]
        done.append(await self._renew(worker_id, session, last, {"named": named}))
        lost = tuple(each for renewal in done for each in renewal.lost)
        return structs.replace(done[-1], lost=lost, effects=_joined([renewal.effects for renewal in done]))

    async def _renew(self, worker_id: str, session: int, held: Sequence[Held], more: Mapping[str, Any]) -> Renewal:
        return await self.run_script(_RENEW, {"worker_id": worker_id, "session": session, "held": held, **more})

    async def give_back(self, worker_id: str, session: int, held: Sequence[Held] | None) -> Effects:
        named: dict[str, Any] = {"worker_id": worker_id, "session": session}
        if held is None:
            done = await self._repeat(_GIVE_BACK, {**named, "kept": (), "lost": True})
        else:
            steps = [await self.run_script(_GIVE_BACK, {**named, "held": piece}) for piece in _pieces(held)]
            done = [step.effects for step in steps]
        return structs.replace(_joined(done), results=done[-1].results)

    async def postpone(self, postponed: Sequence[Postponed]) -> Effects:
        return _joined([await self.run_script(_POSTPONE, {"postponed": piece}) for piece in _pieces(postponed)])

    async def hasten(self, task_ids: Sequence[str]) -> Effects:
        return _joined([await self.run_script(_HASTEN, {"task_ids": piece}) for piece in _pieces(task_ids)])

    async def pass_on(self, worker_id: str, held: Held, to: str) -> Effects:
        return await self.run_script(_PASS_ON, {"worker_id": worker_id, "held": held, "to": to})

    async def reap(self, spare_ms: int = 0, by_ms: int = 0) -> Effects:
        return await self.run_script(_REAP, {"spare": spare_ms, "by": by_ms})

    async def reopen(self) -> Effects:
        cursor = await self.run_script(_RECOUNT, {"cursor": "0"}) if self._bounded else "0"
        while cursor != "0":
            cursor = await self.run_script(_RECOUNT, {"cursor": cursor})
        return _joined(await self._repeat(_REOPEN, {}))

    async def stop(self, run: RunName, run_id: str, component_id: str, reason: str, by: str, mark_ms: int) -> Effects:
        more = {
            "run": str(run),
            "run_id": run_id,
            "component": component_id,
            "reason": reason,
            "by": by,
            "mark_ms": mark_ms,
        }
        return await self.run_script(_STOP, more)

    async def release(self, run: RunName, run_id: str, components: Sequence[Release]) -> Effects:
        releases = [(each.component_id, each.inputs_json, each.skip) for each in components]
        more = {"run": str(run), "run_id": run_id, "components": releases}
        return await self.run_script(_RELEASE, more)

    async def terminate(self, task_id: str, component_id: str, index: int, reason: str, by: str) -> Effects:
        more = {"task_id": task_id, "component": component_id, "index": index, "reason": reason, "by": by}
        return await self.run_script(_TERMINATE, more)

    async def signal(self, signal: Signal) -> Effects:
        bounds = {"most": MAX_KEPT, "max_of_run": MAX_KEPT_OF_RUN, "requests": MAX_REQUESTS}
        return await self.run_script(_SIGNAL, {"signal": signal, **bounds})

    async def report_sub_flows(self, reports: Sequence[SubFlowReport]) -> Effects:
        return await self.run_script(_REPORT_SUB_FLOWS, {"reports": reports})

    async def unlist_dead_letter(self, user_id: str, task_id: str) -> None:
        await self._client.execute_command("ZREM", self._keys.dead_letters(user_id), task_id)

    async def delete_batch(self, run: RunName, user_id: str) -> Deletion:
        batch = {"run": str(run), "user_id": user_id}
        deletion, items = await self.run_script(_DELETE_BATCH, batch)
        # What follows is not needed: entries without a record are swept after a day.
        for first in range(0, items if deletion is Deletion.DELETED else 0, _AT_ONCE):
            last = min(first + _AT_ONCE, items) - 1
            await self.run_script(_UNLIST_ITEMS, {**batch, "first": first, "last": last})
        return deletion

    async def purge(self, flow_id: str, schedule_epoch: int = 0) -> Purge:
        return await self.run_script(_PURGE, {"flow_id": flow_id, "epoch": str(schedule_epoch)})

    async def clean(self, cleaner: str, place: int | None, recall: int | None = None) -> Cleaned:
        return await self.run_script(_CLEAN, {"cleaner": cleaner, "place": place, "recall": recall})

    async def leave_cleaning(self, cleaner: str) -> None:
        await _LEAVE_CLEANING(self._client, self._any_key, {"base": self._keys.base, "cleaner": cleaner})

    async def record(self, progress: Sequence[Progress], lines: Sequence[Line]) -> int:
        return await self.run_script(_RECORD, {"progress": progress, "lines": lines})


def _as_text(limits: dict[str, Any]) -> str:
    """Return limits as scripts get them: as text, which scripts need not parse again while it is the same."""
    return msgspec.json.encode(limits).decode()


def _kinds(vacancies: Sequence[Vacancy]) -> list[object]:
    """Return vacancies as scripts take them: by node types, which are sent once however many workers offer them."""
    return [
        (node_types, [_Room(each.worker_id, each.session, each.credits, each.capacity) for each in kind])
        for node_types, kind in by_kind(vacancies).items()
    ]


def _flat_runs(runs: Sequence[RunSubmission]) -> list[object]:
    """Return the runs as submit_runs.lua reads them: in one list, as making a list costs Lua more than filling it."""
    flat: list[object] = []
    for run in runs:
        flat += (
            str(run.run),
            run.run.flow_id,
            run.run_id,
            run.user_id,
            run.partition,
            run.inputs_json,
            run.traceparent,
        )
        flat += (run.planned_ms, run.begun_ms, run.node_type, len(run.components))
        for part in run.components:
            flat += part
        rest = structs.astuple(run)[_FIRST_RARE_FIELD:]
        flat.append(False if rest == _RARE_DEFAULTS else rest)
    return flat


def _flat_outcomes(outcomes: Sequence[Outcome]) -> list[object]:
    """Return the outcomes as complete_tasks.lua reads them."""
    flat: list[object] = []
    for outcome in outcomes:
        flat += (outcome.task_id, outcome.attempt, outcome.nonce, outcome.kind, len(outcome.outputs))
        for output in outcome.outputs:
            flat += output
        plain = outcome.error is None and outcome.retry_request is None and not outcome.cache and outcome.wait is None
        flat.append(False if plain else _rest_of(outcome))
    return flat


def _rest_of(outcome: Outcome) -> tuple[object, ...]:
    return outcome.error, outcome.retry_request, outcome.cache, outcome.wait, outcome.unreported


def _pieces(items: Sequence[Item], size: Callable[[Item], int] = lambda _: 1) -> Sequence[Sequence[Item]]:
    """Cut items into pieces of at most 500 in total, but at least one item each; no items make one empty piece."""
    pieces: list[list[Item]] = [[]]
    taken = 0
    for item in items:
        taken += size(item)
        if pieces[-1] and taken > _AT_ONCE:
            pieces.append([])
            taken = size(item)
        pieces[-1].append(item)
    return pieces


def _joined(done: Sequence[Effects]) -> Effects:
    """Join the effects of several scripts."""
    if len(done) == 1:
        return done[0]
    return Effects(
        assignments=tuple(each for effects in done for each in effects.assignments),
        terminations=tuple(each for effects in done for each in effects.terminations),
        events=tuple(each for effects in done for each in effects.events),
        ready_types=tuple(each for effects in done for each in effects.ready_types),
        stale_workers=tuple(each for effects in done for each in effects.stale_workers),
        todo=done[-1].todo,
        due_in=done[-1].due_in,
        fan_outs=tuple(each for effects in done for each in effects.fan_outs),
        lost=sum(effects.lost for effects in done),
        results=tuple(each for effects in done for each in effects.results),
    )
