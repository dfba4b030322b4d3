"""Runs cycles now: begins them, hands them over and, if asked to, waits for their ends."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import msgspec

from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.use_cases.await_ends import AwaitEnds
from tradewind.scheduler.use_cases.begin_cycles import BeginCycles, BeginResult, CycleRequest
from tradewind.scheduler.use_cases.definitions import Definitions, PlannedFlow, PlannedRun
from tradewind.scheduler.use_cases.end_waiters import EndWait
from tradewind.scheduler.use_cases.hand_over import HandOver
from tradewind.server.batching import Batcher

MAX_AT_ONCE = 500
"""The most cycles to begin together."""
GROUP = 100
"""The runs of one call begin in groups of so many."""
GROUPS_AT_ONCE = 3
"""So many groups of one call begin or are being submitted at a time; no more, so that other calls have turns."""
_FEW = 10
"""Fewer waiting requests than this wait for the previous submission: beginning them sooner would only cost more."""


class RunResult(msgspec.Struct):
    """The result of one request. `run` is the cycle, or the running cycle that prevents it.

    `state` is set for `begun`, and for `duplicate` unless the first cycle is no longer on record. `run_id` tells it
    from a later one of the same name.
    """

    outcome: BeginOutcome
    run: RunName | None
    state: ChainState | None = None
    planned: PlannedFlow | None = None
    run_id: str = ""


class _Submitted(msgspec.Struct, frozen=True):
    """A cycle that is being submitted; its state afterwards is item `place` of the result of `submitted`."""

    result: RunResult
    submitted: "asyncio.Future[list[ChainState]]"
    place: int


class _Group(NamedTuple):
    """The results of requests judged together, the cycles that have begun, and the wait for their ends, if any."""

    results: list[RunResult]
    submitted_runs: list[_Submitted]
    wait: EndWait | None


class RunCycles:
    """Runs cycles in batches: calls that come in while others are under way go together."""

    def __init__(
        self,
        begin: BeginCycles,
        hand_over: HandOver,
        await_ends: AwaitEnds,
        states: ChainStateRepository,
        definitions: Definitions,
    ) -> None:
        self._begin = begin
        self._hand_over = hand_over
        self._await_ends = await_ends
        self._states = states
        self._definitions = definitions
        self._batcher: Batcher[Sequence[CycleRequest], list[BeginResult]] = Batcher(
            partial(self._flush, wait=False), weigh=len, max_weight=MAX_AT_ONCE, gate=self._submitted
        )
        self._late: Batcher[Sequence[CycleRequest], list[BeginResult]] = Batcher(
            partial(self._flush, wait=True), weigh=len, max_weight=MAX_AT_ONCE
        )
        self._submitting: asyncio.Future[list[ChainState]] | None = None

    async def __call__(
        self,
        requests: Iterable[CycleRequest],
        wait_s: float = 0.0,
        report: Callable[[list[RunResult]], Awaitable[None]] | None = None,
    ) -> list[RunResult]:
        """Run cycles, each judged by itself, and return the results in the order of the requests.

        Returns when the cycles are submitted, or refused by the node task manager (then they are submitted again
        later). With `wait_s`, it returns when all have ended, or when that time has passed since all have begun. Before
        that, `report` receives the results in groups, in order; other calls have turns in between.
        """
        groups: list[_Group] = []
        try:
            remaining = iter(requests)
            while group := list(islice(remaining, GROUP)):
                if len(groups) >= GROUPS_AT_ONCE and groups[-GROUPS_AT_ONCE].submitted_runs:
                    # Runs of large flows are submitted beside the others, so the last is not always submitted last.
                    await asyncio.wait({run.submitted for run in groups[-GROUPS_AT_ONCE].submitted_runs})
                begun = await self._begun(group)
                groups.append(self._submit_begun(begun, wait=wait_s > 0))
            loop = asyncio.get_running_loop()
            until = loop.time() + wait_s
            for at, started in enumerate(groups):
                if at:
                    await asyncio.sleep(0)
                await self._finish(started, max(0.0, until - loop.time()))
                if report is not None:
                    await report(started.results)
        except BaseException:
            self._await_ends.abandon([each.wait for each in groups if each.wait is not None])
            for each in groups:
                for run in each.submitted_runs:
                    # These may fail as well, and nobody waits for them any longer.
                    run.submitted.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            raise
        return [result for group in groups for result in group.results]

    async def _begun(self, requests: Sequence[CycleRequest]) -> list[BeginResult]:
        """Begin requests together with those of other calls; those that wait for definitions go by themselves."""
        begun = await self._batcher.submit(requests)
        late = [at for at, each in enumerate(begun) if each.answer.outcome is BeginOutcome.REVISION_CHANGED]
        if late:
            for at, each in zip(late, await self._late.submit([requests[at] for at in late]), strict=True):
                begun[at] = each
        return begun

    def _submit_begun(self, begun: Sequence[BeginResult], *, wait: bool) -> _Group:
        """Submit the cycles that have begun; the wait for their ends begins before that."""
        results = [_result(each) for each in begun]
        started = [result for result in results if result.outcome is BeginOutcome.BEGUN]
        ends = self._await_ends.begin([r.state for r in started if r.state is not None]) if wait else None
        return _Group(results, self._submit(started), ends)

    async def _finish(self, group: _Group, wait_s: float) -> None:
        """Return once a group has been submitted or, if the caller waits for that, has ended; complete its results."""
        unwatched = await self._load_duplicates(group.results)
        for run in group.submitted_runs:
            result, state = run.result, (await run.submitted)[run.place]
            if result.run is not None and state.name != result.run:
                self._await_ends.renamed(result.run)
                unwatched.append(result)
            result.run, result.state = state.name, state
        if group.wait is None:
            return
        waits = [group.wait]
        if unwatched:
            waits.append(await self._await_ends.begin_late([r.run for r in unwatched if r.run is not None]))
        ended = await self._await_ends.finish(waits, wait_s)
        for result in group.results:
            if result.run is not None and result.state is not None:
                result.state = ended.get(result.run, result.state)

    def _submit(self, started: Sequence[RunResult]) -> list[_Submitted]:
        """Submit cycles and return, for each, where to find its state afterwards."""
        runs = [PlannedRun(r.state, r.planned) for r in started if r.state is not None and r.planned is not None]
        submitted_runs: list[_Submitted] = []
        for size, submitted, large in self._hand_over.begin(runs):
            first = len(submitted_runs)
            submitted_runs += [_Submitted(started[first + place], submitted, place) for place in range(size)]
            if not large:
                self._submitting = submitted
        return submitted_runs

    async def _submitted(self) -> None:
        """Return once the previous cycles have been submitted, or at once when more than a few requests wait."""
        if self._batcher.waiting_weight < _FEW and self._submitting is not None and not self._submitting.done():
            await asyncio.wait((self._submitting,))

    async def _load_duplicates(self, results: Sequence[RunResult]) -> list[RunResult]:
        """Read the cycles that had already begun, and return those that are on record."""
        duplicates = [result for result in results if result.outcome is BeginOutcome.DUPLICATE]
        if not duplicates:
            return []
        states = await self._states.load_many([result.run for result in duplicates if result.run is not None])
        for result, found in zip(duplicates, states, strict=True):
            # The flow may have been deleted since, and its name and numbers given to others.
            state = found if found is not None and found.facts.run_id == result.run_id else None
            result.state = state
            # The cycle may have begun with an earlier revision.
            result.planned = await self._definitions.of_run(state) if state is not None else None
        return [result for result in duplicates if result.state is not None]

    async def _flush(self, groups: list[Sequence[CycleRequest]], *, wait: bool) -> list[list[BeginResult]]:
        requests = groups[0] if len(groups) == 1 else [request for group in groups for request in group]
        begun = iter(await self._begin(requests, wait=wait))
        return [[next(begun) for _ in group] for group in groups]


def _result(begun: BeginResult) -> RunResult:
    answer = begun.answer
    return RunResult(answer.outcome, answer.run, answer.state, begun.planned, answer.run_id)
