"""Begins cycles when a cycle that they waited for has ended."""

import math
from collections.abc import Awaitable, Callable, Sequence

from tradewind.scheduler.loops.owned_work import OwnedWork
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.definitions import PlannedRun
from tradewind.scheduler.use_cases.hand_over import HandOver
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions


def queued_loop(
    begins: Sequence[Callable[[Epochs], Awaitable[list[PlannedRun]]]],
    hand_over: HandOver,
    ownership: OwnPartitions,
    background: Background,
    alarm: Alarm,
    poll_s: float,
) -> OwnedWork:
    """Return the loop that begins cycles that waited for an end; `begins` return the runs to hand over."""

    async def work(epochs: Epochs) -> float:
        for begin in begins:
            runs = await begin(epochs)
            if runs:
                background.begin(hand_over(runs), "handing over of cycles that waited")
        return math.inf

    return OwnedWork("queued_cycles_not_begun", work, ownership, alarm, poll_s)
