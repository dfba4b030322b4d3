"""Reads the states of many runs in portions that fit into memory: each may have inputs of a MiB."""

from collections.abc import AsyncIterator, Sequence

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.use_cases.open_states import bytes_of

MAX_RUNS = 500
_READ_AT_ONCE = 50
_BYTES = 16 * 1024 * 1024


async def load_portion(states: ChainStateRepository, runs: Sequence[RunName]) -> list[ChainState | None]:
    """Return the states of the first of these runs, None for those that are gone: at most MAX_RUNS, at least one.

    There are fewer when they take much memory.
    """
    loaded: list[ChainState | None] = []
    taken = 0
    runs = runs[:MAX_RUNS]
    while len(loaded) < len(runs) and taken < _BYTES:
        read = await states.load_many(runs[len(loaded) :][:_READ_AT_ONCE])
        taken += sum(bytes_of(state) for state in read if state is not None)
        loaded += read
    return loaded


async def portions(
    states: ChainStateRepository, runs: Sequence[RunName]
) -> AsyncIterator[dict[RunName, ChainState | None]]:
    """Yield the states of all these runs, a portion at a time, None for those that are gone."""
    while runs:
        loaded = await load_portion(states, runs)
        yield dict(zip(runs, loaded, strict=False))
        runs = runs[len(loaded) :]
