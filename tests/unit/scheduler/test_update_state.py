"""Changing a chain state against other writers: what is retried, for how long, and what is not."""

from collections.abc import Sequence

import pytest
from msgspec import structs

from tradewind.scheduler.domain.chain_state import (
    REASON,
    ChainState,
    CycleFacts,
    CycleOrigin,
    UpdateOutcome,
    UpdateResult,
)
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.ports.owning import NOT_OWNER, Epochs
from tradewind.scheduler.use_cases.update_state import update_state
from tradewind.server.faults import Aborted, Unreadable

RUN = RunName("f", 0)
FACTS = CycleFacts("r0", "default", 1, CycleOrigin.RUN_FLOW, 1, 1, 0, 2, 1, FailurePolicy.SKIP_DOWNSTREAM)
ENDED = ChainState(RUN, FACTS, 7, status=CycleStatus.FAILED)


class Outage(Exception):
    """The store cannot be reached."""


class ScriptedStates:
    """A repository that answers writes as the test says.

    The version on record rises with each conflict; with `terminal`, the run has ended meanwhile.
    """

    def __init__(self, *outcomes: UpdateOutcome | Outage) -> None:
        self.outcomes = list(outcomes)
        self.state: ChainState | None = ChainState(RUN, FACTS, 1)
        self.seen: list[int] = []

    async def load(self, run: RunName) -> ChainState | None:
        return self.state

    async def load_many(self, runs: Sequence[RunName]) -> list[ChainState | None]:
        return [self.state for _ in runs]

    async def update_many(self, updates: Sequence[RunUpdate], epochs: Epochs = NOT_OWNER) -> list[UpdateResult]:
        (update,) = updates
        state = update.state
        self.seen.append(state.version)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Outage):
            raise outcome
        version = state.version + 1
        if outcome is UpdateOutcome.CONFLICT:
            self.state = structs.replace(state, version=version, reason="")
        if outcome is UpdateOutcome.TERMINAL:
            self.state = ENDED
        return [UpdateResult(outcome, version)]


def with_reason(state: ChainState) -> tuple[ChainState, set[str]]:
    return structs.replace(state, reason="so"), {REASON}


async def test_conflict_is_retried_from_the_stored_state() -> None:
    states = ScriptedStates(UpdateOutcome.CONFLICT, UpdateOutcome.CONFLICT, UpdateOutcome.OK)

    result, state = await update_state(states, RUN, with_reason)

    assert states.seen == [1, 2, 3]
    assert (result, state) == (UpdateResult(UpdateOutcome.OK, 4), ChainState(RUN, FACTS, 4, reason="so"))


async def test_repeated_conflicts_are_given_up_at_the_deadline() -> None:
    states = ScriptedStates(UpdateOutcome.CONFLICT)

    with pytest.raises(Aborted, match="run f:0:0 kept changing; try again"):
        await update_state(states, RUN, with_reason, deadline_s=0.05)
    assert 1 < len(states.seen) < 50


async def test_store_outage_is_raised_at_once_without_retry() -> None:
    states = ScriptedStates(UpdateOutcome.CONFLICT, Outage("the store is away"), UpdateOutcome.OK)

    with pytest.raises(Outage):
        await update_state(states, RUN, with_reason)
    assert states.seen == [1, 2]


@pytest.mark.parametrize(
    ("outcome", "found"),
    [(UpdateOutcome.MISSING, ChainState(RUN, FACTS, 1)), (UpdateOutcome.TERMINAL, ENDED)],
)
async def test_missing_or_ended_run_is_reported_without_retry(outcome: UpdateOutcome, found: ChainState) -> None:
    states = ScriptedStates(outcome)

    result, state = await update_state(states, RUN, with_reason)

    assert (result.outcome, state, states.seen) == (outcome, found, [1])


async def test_unknown_run_is_not_created() -> None:
    states = ScriptedStates(UpdateOutcome.OK)
    states.state = None

    assert await update_state(states, RUN, with_reason) == (UpdateResult(UpdateOutcome.MISSING), None)
    assert states.seen == []


async def test_unreadable_flow_is_not_retried() -> None:
    states = ScriptedStates(UpdateOutcome.UNREADABLE)

    with pytest.raises(Unreadable, match="flow:f cannot be read"):
        await update_state(states, RUN, with_reason)
    assert states.seen == [1]
