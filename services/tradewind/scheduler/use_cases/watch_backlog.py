"""What one watcher is still to be told: bounded, however slowly it reads."""

from tradewind.scheduler.domain.chain_state import ChainState

MOST_STATES = 5_000
MOST_BYTES = 16 * 1024 * 1024
MESSAGE_BYTES = 512 * 1024
_STATE_BYTES = 300


class Backlog:
    """States in the order in which they came. Of too many only the newest of each run stay, and of these the latest."""

    def __init__(self) -> None:
        self._states: list[ChainState] = []
        self._weight = 0

    def __len__(self) -> int:
        return len(self._states)

    def add(self, state: ChainState) -> None:
        """Take a state, in the place of others when there are too many."""
        self._states.append(state)
        self._weight += weight_of(state)
        if len(self._states) > MOST_STATES or self._weight > MOST_BYTES:
            self._shorten()

    def take(self) -> list[ChainState]:
        """Return the first states, as many as one message holds; at least one if there are any."""
        weight, count = 0, 0
        for state in self._states:
            weight += weight_of(state)
            if count and weight > MESSAGE_BYTES:
                weight -= weight_of(state)
                break
            count += 1
        taken, self._states = self._states[:count], self._states[count:]
        self._weight -= weight
        return taken

    def _shorten(self) -> None:
        latest = {state.name: state for state in self._states}
        kept: list[ChainState] = []
        weight = 0
        for state in reversed(latest.values()):
            weight += weight_of(state)
            if kept and (len(kept) == MOST_STATES or weight > MOST_BYTES):
                weight -= weight_of(state)
                break
            kept.append(state)
        self._states, self._weight = kept[::-1], weight


def weight_of(state: ChainState) -> int:
    """Return about how many bytes a state takes in a message."""
    facts = state.facts
    names = sum(map(len, facts.rerun.from_nodes)) if facts.rerun is not None else 0
    return _STATE_BYTES + len(facts.inputs_json) + len(state.reason) + names
