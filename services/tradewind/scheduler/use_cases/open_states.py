"""The states of open runs as this process last saw them: hints, which every compare-and-set checks.

The check goes by versions. A store that has lost its last second gives the same versions to other states, so all hints
are forgotten when the connection to the store is lost.
"""

from collections import OrderedDict
from collections.abc import Iterable

from tradewind.scheduler.domain.chain_state import NO_NOTES, ChainState
from tradewind.scheduler.domain.run_name import RunName

_MAX_BYTES = 128 * 1024 * 1024
_STATE_BYTES, _COMPONENT_BYTES = 1_100, 170


class OpenStates:
    """Remembers the newest states, as many as fit into `max_bytes`: inputs may be large, components many."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._states: OrderedDict[RunName, ChainState] = OrderedDict()

    def get(self, run: RunName) -> ChainState | None:
        """Return the state of a run as it was last seen."""
        return self._states.get(run)

    def put(self, states: Iterable[ChainState]) -> None:
        """Remember states of open runs."""
        for state in states:
            self.drop(state.name)
            self._states[state.name] = state
            self._bytes += bytes_of(state)
        while self._bytes > self._max_bytes:
            self.drop(next(iter(self._states)))

    def drop(self, run: RunName) -> None:
        """Forget a run."""
        state = self._states.pop(run, None)
        if state is not None:
            self._bytes -= bytes_of(state)

    def clear(self) -> None:
        """Forget all runs."""
        self._states.clear()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._states)


def bytes_of(state: ChainState) -> int:
    """Return roughly how much memory a state takes."""
    notes = state.notes
    large = len(state.facts.inputs_json) + len(notes.result_json) + (notes.memory.size if notes is not NO_NOTES else 0)
    return _STATE_BYTES + _COMPONENT_BYTES * len(state.components) + large
