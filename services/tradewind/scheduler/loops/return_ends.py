"""Reports to nodes of other flows how the cycles that they wait for ended."""

import math

from tradewind.scheduler.loops.owned_work import OwnedWork
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.ports.waking import Work
from tradewind.scheduler.use_cases.return_ends import ReturnEnds
from tradewind.scheduler.use_cases.wake_owners import WakeOwners

_RETRY_S = 0.5


def return_ends_loop(return_ends: ReturnEnds, wake: WakeOwners, poll_s: float) -> OwnedWork:
    """Return the loop that reports ends, including those that a predecessor left unreported."""

    async def work(epochs: Epochs) -> float:
        await return_ends(list(epochs))
        return math.inf

    return OwnedWork("ends_not_returned", work, wake, Work.RETURNS, poll_s, _RETRY_S)
