"""The states that one watcher has still to receive: bounded, however slowly it reads."""

from collections import OrderedDict

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.run_name import RunName
from tradewind.server.paging import MESSAGE_BYTES

MAX_STATES = 5_000
MAX_BYTES = 16 * 1024 * 1024
_STATE_BYTES = 300


class Backlog:
    """States in the order in which they came. If there are too many, only the newest state of each run stays.

    If those are still too many, the oldest are dropped. Until the backlog has been emptied, a new state then replaces
    an older state of the same run; so adding a state never means looking through the others.
    """

    def __init__(self) -> None:
        self._states: OrderedDict[RunName | tuple[RunName, int], ChainState] = OrderedDict()
        self._weight = 0
        self._newest_only = False

    def __len__(self) -> int:
        return len(self._states)

    def add(self, state: ChainState) -> None:
        """Take a state; when there are too many, others are dropped."""
        self._put(state)
        if not self._over_limit():
            return
        if not self._newest_only:
            self._newest_only = True
            states, self._states, self._weight = self._states, OrderedDict(), 0
            for each in states.values():
                self._put(each)
        while self._over_limit() and len(self._states) > 1:
            self._pop_first()

    def pop(self) -> list[ChainState]:
        """Take out the first states, as many as one message holds; at least one if there are any."""
        popped: list[ChainState] = []
        room = MESSAGE_BYTES
        while self._states:
            room -= weight_of(next(iter(self._states.values())))
            if popped and room < 0:
                return popped
            popped.append(self._pop_first())
        self._newest_only = False
        return popped

    def _over_limit(self) -> bool:
        return len(self._states) > MAX_STATES or self._weight > MAX_BYTES

    def _put(self, state: ChainState) -> None:
        key = state.name if self._newest_only else (state.name, state.version)
        before = self._states.pop(key, None)
        self._states[key] = state
        self._weight += weight_of(state) - (weight_of(before) if before is not None else 0)

    def _pop_first(self) -> ChainState:
        _, first = self._states.popitem(last=False)
        self._weight -= weight_of(first)
        return first


def weight_of(state: ChainState) -> int:
    """Return roughly how many bytes a state takes in a message."""
    facts = state.facts
    names = sum(map(len, facts.rerun.from_nodes)) if facts.rerun is not None else 0
    return _STATE_BYTES + len(facts.inputs_json) + len(state.reason) + names
