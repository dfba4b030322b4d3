"""The numbers of the cycles that this process has begun last: a store that has lost them would give them out again.

Runs and node tasks have their names by these numbers.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from tradewind.scheduler.domain.chain_state import ChainState, CycleOrigin


class _Begun(NamedTuple):
    """A cycle, or the latest of a flow; `planned_ms` is 0 for cycles that no schedule has begun."""

    cycle: int
    planned_ms: int


_Key = tuple[str, int | str]
"""A flow, and the planned time or else the run id of a cycle."""


class BegunNumbers:
    """Remembers the newest `most` cycles."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._begun: OrderedDict[_Key, _Begun] = OrderedDict()
        self._doubtful: dict[str, _Begun] = {}
        """Flows of which the store may have lost cycles, with the last number and planned time of each."""

    def note(self, states: Iterable[ChainState]) -> None:
        """Remember cycles that have begun."""
        for state in states:
            flow_id, cycle, facts = state.name.flow_id, state.name.cycle, state.facts
            planned_ms = facts.planned_ms if facts.origin is CycleOrigin.SCHEDULE else 0
            key = flow_id, planned_ms or facts.run_id
            if key in self._begun:
                self._begun.move_to_end(key)
            self._begun[key] = _Begun(cycle, planned_ms)
            if self._doubtful and (before := self._doubtful.get(flow_id)) and cycle > before.cycle:
                del self._doubtful[flow_id]
        while len(self._begun) > self._most:
            self._begun.popitem(last=False)

    def store_lost(self) -> None:
        """Note that the store may come back without the latest cycles."""
        latest: dict[str, _Begun] = {}
        for (flow_id, _), begun in self._begun.items():
            before = latest.get(flow_id, begun)
            # The last number need not be the highest: an earlier flow of this name may have been deleted.
            latest[flow_id] = _Begun(begun.cycle, max(begun.planned_ms, before.planned_ms))
        for flow_id, begun in latest.items():
            before = self._doubtful.get(flow_id, begun)
            self._doubtful[flow_id] = begun._replace(cycle=max(begun.cycle, before.cycle))

    def at_least(self, flow_id: str, run_id: str) -> int:
        """Return the lowest number for a run that no schedule begins: its own if it has had one, else one that is new.

        0 is any.
        """
        latest = self._doubtful.get(flow_id)
        if latest is None:
            return 0
        begun = self._begun.get((flow_id, run_id))
        return latest.cycle + 1 if begun is None else begun.cycle

    def at_least_for(self, flow_id: str, planned_ms: int) -> int:
        """Return the lowest number for the cycle of a planned time, 0 for any.

        A time that is unknown here, but not later than those that are known, was another replica's. It gets the next
        number that the store knows of, which most likely was its own.
        """
        latest = self._doubtful.get(flow_id)
        if latest is None:
            return 0
        begun = self._begun.get((flow_id, planned_ms))
        if begun is not None:
            return begun.cycle
        return latest.cycle + 1 if planned_ms > latest.planned_ms else 0
