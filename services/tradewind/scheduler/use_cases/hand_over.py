"""Hands over begun cycles to the node task manager, in natural batches, scheduled cycles before all others.

Cycles of large flows are handed over beside them, a group at a time.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog
from msgspec import structs

from tradewind.scheduler.domain.backfill import BackfillStep
from tradewind.scheduler.domain.chain_state import REASON, ChainState, CycleOrigin
from tradewind.scheduler.domain.log_line import LogLevel, LogText
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.domain.submission import Submission, SubmitAnswer, SubmitOutcome
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.ports.peers import NodeTasks, PeerRefused, PeerUnavailable
from tradewind.scheduler.ports.waking import WakeOwner, Work
from tradewind.scheduler.use_cases.begin_cycles import BeginCycles, CycleRequest
from tradewind.scheduler.use_cases.definitions import NODES_AT_ONCE, PlannedRun
from tradewind.scheduler.use_cases.fold_events import FoldEvents
from tradewind.scheduler.use_cases.open_states import OpenStates
from tradewind.scheduler.use_cases.stop_orders import stop_all, stop_orders
from tradewind.server.batching import Batcher
from tradewind.server.clock import Clock
from tradewind.server.incidents import IncidentLog

_PLAN_BYTES = 1024 * 1024
_NUMBERS_TRIED = 24
_RETRY_MS = (1_000, 30_000)
_EXPIRED = "RESULTS_EXPIRED"
_SUBMITTED = (SubmitOutcome.ACCEPTED, SubmitOutcome.DUPLICATE)

_log = structlog.get_logger(__name__)

_Refusal = tuple[ChainState, str, int]
"""The state of a run that has to wait, why, and for how many ms at least."""


class HandedOver(NamedTuple):
    """A group of `size` runs that is being submitted, and a future for their states afterwards, in order."""

    size: int
    states: "asyncio.Future[list[ChainState]]"
    large: bool


@dataclass(slots=True)
class _Group:
    """Runs that are submitted together, and their weight; those of `large` flows have groups of their own."""

    runs: list[PlannedRun]
    weight: int
    large: bool = False

    @property
    def scheduled(self) -> bool:
        """Whether all of them were begun by schedules."""
        return all(
            run.state.facts.origin is CycleOrigin.SCHEDULE and run.state.facts.rerun is None for run in self.runs
        )


class HandOver:
    """Submits runs. Whatever happens, the runs stay open on record, so that a failed submission is repeated later."""

    def __init__(
        self,
        node_tasks: NodeTasks,
        states: ChainStateRepository,
        begin: BeginCycles,
        fold: FoldEvents,
        open_states: OpenStates,
        wake: WakeOwner,
        clock: Clock,
    ) -> None:
        self._node_tasks = node_tasks
        self._states = states
        self._begin = begin
        self._fold = fold
        self._open_states = open_states
        self._wake = wake
        self._clock = clock
        self.outage: PeerUnavailable | None = None
        """Why the last submission did not reach the node task manager, None if it did."""
        self._failing = IncidentLog(_log, "cycles_not_submitted", "cycle_submission_recovered")
        self._batcher: Batcher[_Group, list[ChainState]] = Batcher(
            self._flush, weigh=lambda group: group.weight, max_weight=NODES_AT_ONCE
        )
        self._large: Batcher[_Group, list[ChainState]] = Batcher(self._flush, max_items=1)

    def begin(self, runs: Sequence[PlannedRun]) -> list[HandedOver]:
        """Submit runs in groups, and return these in order.

        A run that was refused, or could not be sent, has the reason in its record. A run whose name turned out to be
        taken has another number.
        """
        return [self._begin_group(group) for group in _grouped(runs)]

    def _begin_group(self, group: _Group) -> HandedOver:
        batcher = self._large if group.large else self._batcher
        return HandedOver(len(group.runs), batcher.submit(group, urgent=group.scheduled), group.large)

    async def __call__(self, runs: Sequence[PlannedRun]) -> list[ChainState]:
        """Submit runs and return their states afterwards."""
        return [state for group in self.begin(runs) for state in await group.states]

    async def _flush(self, groups: list[_Group]) -> list[list[ChainState]]:
        states = iter(await self._submit([run for group in groups for run in group.runs]))
        return [[next(states) for _ in group.runs] for group in groups]

    async def _submit(self, runs: list[PlannedRun]) -> list[ChainState]:
        try:
            answers = await self._send(runs)
            self.outage = None
        except PeerUnavailable as error:
            self._failing.note(error.message, runs=len(runs), error=error.detail)
            self.outage = None if error.answered else error
            return await self._store_refusals(
                [(run.state, f"{error.message}; it will be tried again", 0) for run in runs]
            )
        except PeerRefused as error:
            self.outage = None
            if len(runs) == 1:
                return await self._store_refusals([(runs[0].state, f"the node task manager refused it: {error}", 0)])
            # One of the runs is at fault: the others must not wait for it.
            half = len(runs) // 2
            return [*await self._submit(runs[:half]), *await self._submit(runs[half:])]
        states = [run.state for run in runs]
        refusals: dict[int, _Refusal] = {}
        for place, answer in enumerate(answers):
            if answer.outcome in _SUBMITTED:
                continue
            if runs[place].state.facts.rerun is not None and (_name_is_taken(answer) or answer.reason == _EXPIRED):
                states[place] = await self._give_up(states[place], answer)
                continue
            if _name_is_taken(answer):
                states[place], answer = await self._rename(runs[place])
                if answer.outcome in _SUBMITTED:
                    continue
            refusals[place] = (states[place], _refusal_text(answer), answer.retry_ms)
        if refusals:
            for place, state in zip(refusals, await self._store_refusals(refusals.values()), strict=True):
                states[place] = state
        return states

    async def _send(self, runs: Sequence[PlannedRun]) -> list[SubmitAnswer]:
        """Submit runs, then submit those again whose plans the node task manager does not know, with the plans."""
        answers = await self._node_tasks.submit([_submission(run) for run in runs], ())
        unknown = [place for place, answer in enumerate(answers) if answer.outcome is SubmitOutcome.PLAN_UNKNOWN]
        for batch in _by_plan_size(runs, answers, unknown):
            plans = {
                digest: runs[place].planned.plans[digest] for place in batch for digest in answers[place].unknown_plans
            }
            again = await self._node_tasks.submit([_submission(runs[place]) for place in batch], list(plans.values()))
            for place, answer in zip(batch, again, strict=True):
                answers[place] = answer
        return answers

    async def _rename(self, run: PlannedRun) -> tuple[ChainState, SubmitAnswer]:
        """Begin a run again under a number that nobody uses: the store has lost its last second, or more."""
        state, answer = run.state, SubmitAnswer(SubmitOutcome.RUN_CONFLICT)
        for attempt in range(_NUMBERS_TRIED):
            facts = state.facts
            request = CycleRequest(
                state.name.flow_id,
                facts.origin,
                facts.planned_ms,
                inputs_json=facts.inputs_json,
                traceparent=facts.traceparent,
                run_id=facts.run_id,
                replaces=state.name.cycle,
                at_least=state.name.cycle + 2**attempt,
                backfill=BackfillStep(facts.backfill_id) if facts.backfill_id else None,
                parent=facts.parent,
            )
            (begun,) = await self._begin([request])
            if begun.answer.state is None:
                return state, SubmitAnswer(SubmitOutcome.REFUSED, reason="FLOW_DELETING")
            _log.warning("cycle_renumbered", flow_id=state.name.flow_id, cycle=state.name.cycle)
            self._open_states.drop(state.name)
            state = begun.answer.state
            if state.stop is not None:
                # The mark must be there before the run is.
                await stop_all(self._node_tasks, stop_orders(state))
            (answer,) = await self._send([PlannedRun(state, begun.planned or run.planned)])
            if answer.outcome is not SubmitOutcome.RUN_CONFLICT:
                # A flow that was purged just now, by another clock, refuses every number until that moment has passed.
                break
        return state, answer

    async def _give_up(self, state: ChainState, answer: SubmitAnswer) -> ChainState:
        """End a rerun that cannot go on: its name is taken, or the results that it was to keep are gone."""
        reason = "the results that it was to keep have expired" if answer.reason == _EXPIRED else _refusal_text(answer)
        return await self._fold.give_up(state, reason)

    async def _store_refusals(self, refusals: Iterable[_Refusal]) -> list[ChainState]:
        """Put on record why runs wait, and when they are tried again."""
        now_ms = self._clock.now_ms()
        updates: list[RunUpdate] = []
        for state, reason, retry_ms in refusals:
            age_ms = now_ms - state.facts.start_ms
            # SuperviseRuns tries a peer that is away with one batch of runs a second, however many runs wait.
            check_in_ms = _RETRY_MS[0] if self.outage is not None else retry_after(age_ms, retry_ms)
            log = LogText(LogLevel.WARNING, f"Not submitted yet: {reason}") if reason != state.reason else None
            updates.append(RunUpdate(structs.replace(state, reason=reason), (REASON,), check_in_ms, log))
        states = [
            structs.replace(update.state, version=result.version) if result.ok else update.state
            for update, result in zip(updates, await self._states.update_many(updates), strict=True)
        ]
        self._open_states.put(states)
        for update in updates:
            self._wake(Work.RUNS, update.state.name.flow_id, update.check_in_ms)
        return states


def retry_after(age_ms: int, least_ms: int = 0) -> int:
    """Return how long to wait before a refused run of this age is submitted again.

    The wait doubles each time, from 1 s to 30 s, because it equals the age. It is at least `least_ms`.
    """
    return max(least_ms, min(_RETRY_MS[1], max(_RETRY_MS[0], age_ms)))


def _submission(run: PlannedRun) -> Submission:
    return Submission(run.state, run.planned.components, run.planned.large)


def _name_is_taken(answer: SubmitAnswer) -> bool:
    # FLOW_DELETING: a run that began before its flow was purged there can only be begun again, under another number.
    return answer.outcome is SubmitOutcome.RUN_CONFLICT or answer.reason == "FLOW_DELETING"


def _refusal_text(answer: SubmitAnswer) -> str:
    if answer.outcome is SubmitOutcome.RUN_CONFLICT:
        return "the node task manager has other runs under every number that was tried"
    if answer.outcome is SubmitOutcome.PLAN_UNKNOWN:
        return "the node task manager did not accept the plan"
    return f"the node task manager refused it: {answer.reason or 'no reason given'}"


def _grouped(runs: Sequence[PlannedRun]) -> list[_Group]:
    """Return runs in groups of at most a batch's weight, large ones apart; a heavier run gets a group of its own."""
    groups: list[_Group] = []
    for run in runs:
        weight = run.weight
        large = run.planned.large
        if not groups or groups[-1].large != large or groups[-1].weight + weight > NODES_AT_ONCE:
            groups.append(_Group([], 0, large))
        groups[-1].runs.append(run)
        groups[-1].weight += weight
    return groups


def _by_plan_size(
    runs: Sequence[PlannedRun], answers: Sequence[SubmitAnswer], places: Sequence[int]
) -> list[list[int]]:
    """Return `places` in batches of at most 1 MiB of inputs and plans, each plan counted once.

    A larger run gets a batch of its own.
    """
    batches: list[list[int]] = []
    sent: set[str] = set()
    size = 0
    for place in places:
        run, wanted = runs[place], answers[place].unknown_plans
        inputs = len(run.state.facts.inputs_json)
        more = inputs + sum(run.planned.plans[digest].size for digest in wanted if digest not in sent)
        if not batches or size + more > _PLAN_BYTES:
            batches.append([])
            sent.clear()
            size, more = 0, inputs + sum(run.planned.plans[digest].size for digest in wanted)
        batches[-1].append(place)
        sent.update(wanted)
        size += more
    return batches
