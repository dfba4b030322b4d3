"""The states of open runs as this process last saw them: hints, which every compare-and-set checks.

The check goes by versions. A store that has lost its last second gives the same versions to other states, so all hints
are forgotten when the connection to the store is lost.
"""

from collections import OrderedDict
from collections.abc import Iterable

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.run_name import RunName


class OpenStates:
    """Remembers the newest `most` states."""

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._states: OrderedDict[RunName, ChainState] = OrderedDict()

    def get(self, run: RunName) -> ChainState | None:
        """Return the state of a run as it was last seen."""
        return self._states.get(run)

    def put(self, states: Iterable[ChainState]) -> None:
        """Remember states of open runs."""
        for state in states:
            self._states[state.name] = state
        while len(self._states) > self._most:
            self._states.popitem(last=False)

    def drop(self, run: RunName) -> None:
        """Forget a run."""
        self._states.pop(run, None)

    def clear(self) -> None:
        """Forget all runs."""
        self._states.clear()

    def __len__(self) -> int:
        return len(self._states)
