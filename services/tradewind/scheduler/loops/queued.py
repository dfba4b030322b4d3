"""Begins cycles when a cycle that they waited for has ended."""

import math
from collections.abc import Awaitable, Callable, Sequence

from tradewind.scheduler.loops.owned_work import OwnedWork
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.ports.waking import Work
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.definitions import PlannedRun
from tradewind.scheduler.use_cases.hand_over import HandOver
from tradewind.scheduler.use_cases.wake_owners import WakeOwners


def queued_loop(
    begins: Sequence[Callable[[Epochs], Awaitable[list[PlannedRun]]]],
    hand_over: HandOver,
    background: Background,
    wake: WakeOwners,
    poll_s: float,
) -> OwnedWork:
    """Return the loop that begins cycles that waited for an end; `begins` return the runs to hand over."""

    async def work(epochs: Epochs) -> float:
        for begin in begins:
            runs = await begin(epochs)
            if runs:
                background.begin(hand_over(runs), "handing over of cycles that waited")
        return math.inf

    return OwnedWork("queued_cycles_not_begun", work, wake, Work.WAITING, poll_s)
