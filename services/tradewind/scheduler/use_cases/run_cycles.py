"""Runs cycles now: begins them, hands them over and, where asked to, waits for their end."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.use_cases.await_ends import AwaitEnds
from tradewind.scheduler.use_cases.begin_cycles import BeginCycles, Begun, Wish
from tradewind.scheduler.use_cases.definitions import Definitions, PlannedFlow, PlannedRun
from tradewind.scheduler.use_cases.end_waiters import EndWait
from tradewind.scheduler.use_cases.hand_over import HandOver
from tradewind.server.batching import Batcher

MOST_AT_ONCE = 500
"""How many cycles begin together at most: while so many are submitted, the next ones begin."""
_FEW = 10
"""Fewer calls wait until those before are submitted: begun sooner they would only wait there, and cost as many."""


@dataclass(slots=True)
class RunResult:
    """What became of one wish. `run` is the cycle, or the one that stands in the way.

    `state` is there for `begun`, and for `duplicate` unless the first cycle's record has passed its retention.
    """

    outcome: BeginOutcome
    run: RunName | None
    state: ChainState | None = None
    planned: PlannedFlow | None = None


class RunCycles:
    """Calls that come in while others are under way go together with the next ones."""

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
        self._batcher: Batcher[Sequence[Wish], list[Begun]] = Batcher(
            self._flush, weigh=len, max_weight=MOST_AT_ONCE, gate=self._submitted
        )
        self._submitting: asyncio.Future[list[ChainState]] | None = None

    async def __call__(self, wishes: Sequence[Wish], wait_s: float = 0.0) -> list[RunResult]:
        """Run cycles, each judged by itself, and return what became of each, in their order.

        Answers when they are submitted, or refused by the node task manager (then they are submitted again later); with
        `wait_s` when all have ended or the time is up.
        """
        results: list[RunResult] = []
        handed: list[tuple[RunResult, asyncio.Future[list[ChainState]], int]] = []
        waits: list[EndWait] = []
        try:
            for first in range(0, len(wishes), MOST_AT_ONCE):
                group = self._batcher.submit(wishes[first : first + MOST_AT_ONCE])
                # It begins while the one before is submitted; no more of them wait, so that other calls have turns.
                submitting = handed[-1][1] if handed else None
                some = [_result(begun) for begun in await group]
                results += some
                started = [result for result in some if result.outcome is BeginOutcome.BEGUN]
                if wait_s > 0:
                    waits.append(self._await_ends.begin([r.state for r in started if r.state is not None]))
                handed += self._hand(started)
                if submitting is not None:
                    await asyncio.wait((submitting,))
            unnoticed = await self._load_duplicates(results)
            for result, submitted, place in handed:
                state = (await submitted)[place]
                if result.run is not None and state.name != result.run:
                    self._await_ends.renamed(result.run)
                    unnoticed.append(result)
                result.run, result.state = state.name, state
            if wait_s > 0 and unnoticed:
                waits.append(await self._await_ends.begin_late([r.run for r in unnoticed if r.run is not None]))
        except BaseException:
            self._await_ends.abandon(waits)
            for _, submitted, _ in handed:
                # They may fail as well, and nobody waits for them any more.
                submitted.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            raise
        if wait_s > 0:
            ended = await self._await_ends.finish(waits, wait_s)
            for result in results:
                if result.run is not None and result.state is not None:
                    result.state = ended.get(result.run, result.state)
        return results

    def _hand(self, started: Sequence[RunResult]) -> list[tuple[RunResult, "asyncio.Future[list[ChainState]]", int]]:
        """Submit cycles and return, for each, where to find how it stands then."""
        runs = [PlannedRun(r.state, r.planned) for r in started if r.state is not None and r.planned is not None]
        handed: list[tuple[RunResult, asyncio.Future[list[ChainState]], int]] = []
        for size, submitted in self._hand_over.begin(runs):
            first = len(handed)
            handed += [(started[first + place], submitted, place) for place in range(size)]
            self._submitting = submitted
        return handed

    async def _submitted(self) -> None:
        """Return once what has begun before is submitted, at once when more than a few wait."""
        if self._batcher.waiting < _FEW and self._submitting is not None and not self._submitting.done():
            await asyncio.wait((self._submitting,))

    async def _load_duplicates(self, results: Sequence[RunResult]) -> list[RunResult]:
        """Read the cycles that had begun before, and return those that are on record."""
        repeated = [result for result in results if result.outcome is BeginOutcome.DUPLICATE]
        if not repeated:
            return []
        states = await self._states.load_many([result.run for result in repeated if result.run is not None])
        for result, state in zip(repeated, states, strict=True):
            result.state = state
            # It may have begun with an earlier revision.
            result.planned = await self._definitions.of_run(state) if state is not None else None
        return [result for result in repeated if result.state is not None]

    async def _flush(self, groups: list[Sequence[Wish]]) -> list[list[Begun]]:
        wishes = groups[0] if len(groups) == 1 else [wish for group in groups for wish in group]
        begun = iter(await self._begin(wishes))
        return [[next(begun) for _ in group] for group in groups]


def _result(begun: Begun) -> RunResult:
    answer = begun.answer
    return RunResult(answer.outcome, answer.run, answer.state, begun.planned)
