"""Changes one run's chain state while others may write it too."""

from collections.abc import Callable, Collection

from msgspec import structs
from tenacity import AsyncRetrying, RetryError, retry_if_result, stop_after_delay, wait_random_exponential

from tradewind.scheduler.domain.chain_state import ChainState, UpdateOutcome, UpdateResult
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.use_cases.faults import flow_unreadable, kept_changing, names_of

Change = Callable[[ChainState], tuple[ChainState, Collection[str]]]
"""Returns the state wanted and the fields that differ. Pure: it is called again after every conflict."""


def retry_conflicts(deadline_s: float) -> AsyncRetrying:
    """Return a caller that repeats a function while it reports a conflict, with jittered backoff, until the deadline.

    It raises RetryError when the deadline passes.
    """
    return AsyncRetrying(
        retry=retry_if_result(lambda answer: answer[0].outcome is UpdateOutcome.CONFLICT),
        wait=wait_random_exponential(multiplier=0.002, max=0.5),
        stop=stop_after_delay(deadline_s),
    )


async def update_state(
    states: ChainStateRepository, run: RunName, change: Change, *, deadline_s: float = 5.0
) -> tuple[UpdateResult, ChainState | None]:
    """Load a run, change it and write it back; after a conflict, try again with jittered backoff until the deadline.

    Returns the outcome (`ok`, `missing` or `terminal`) and the state: as written if `ok`, as it ended if `terminal`,
    else as loaded, None if there was none. Errors of the store pass through at once: an outage is not a conflict.
    Raises Aborted when the deadline passes, Unreadable when the flow, or a part of it, is.
    """

    async def once() -> tuple[UpdateResult, ChainState | None]:
        state = await states.load(run)
        if state is None:
            return UpdateResult(UpdateOutcome.MISSING), None
        changed, fields = change(state)
        (result,) = await states.update_many([RunUpdate(changed, fields)])
        if result.outcome is UpdateOutcome.UNREADABLE:
            raise flow_unreadable(run.flow_id)
        if result.ok:
            return result, structs.replace(changed, version=result.version, end_ms=result.end_ms)
        # A run may end between reading and writing it: its end is not part of the state that was read.
        return result, await states.load(run) if result.outcome is UpdateOutcome.TERMINAL else state

    try:
        return await retry_conflicts(deadline_s)(once)
    except RetryError:
        raise kept_changing(f"run {run}", **names_of(run)) from None
