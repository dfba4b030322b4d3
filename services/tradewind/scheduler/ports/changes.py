"""Hearing of changes of runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.run_name import RunName


@dataclass(frozen=True, slots=True)
class RunChange:
    """A change to a run, at `version`; cycle -1 says that the flow is gone.

    `state_after(before)` returns the state after it, given the one before (None at the beginning), or None when the
    record has to be read for that.
    """

    run: RunName
    version: int
    state_after: Callable[[ChainState | None], ChainState | None]


class ChangeFeed(Protocol):
    """Changes to runs, as they happen, on whichever replica."""

    async def subscribe(
        self, partition: int, heard: Callable[[Sequence[RunChange]], None], resync: Callable[[], None]
    ) -> Callable[[], None]:
        """Call `heard` with each batch of changes of a partition from now on, and `resync` when some may be missed.

        Returns, once nothing can be missed any more, what ends it.
        """
        ...
