"""A feed of changes to runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.run_name import RunName


@dataclass(frozen=True, slots=True)
class RunChange:
    """A change to a run, at `version`; cycle -1 says that the flow is gone.

    `state_after(before)` returns the state after the change, given the previous state (None at the beginning). It
    returns None when the record has to be read instead.
    """

    run: RunName
    version: int
    state_after: Callable[[ChainState | None], ChainState | None]


class ChangeFeed(Protocol):
    """Changes to runs as they happen, whichever replica makes them."""

    async def subscribe(
        self, partition: int, on_changes: Callable[[Sequence[RunChange]], None], resync: Callable[[], None]
    ) -> Callable[[], None]:
        """Call `on_changes` with each batch of changes of a partition from now on, `resync` when some may be missed.

        Returns as soon as no change can be missed any more; the returned function ends the subscription.
        """
        ...
