"""Looks after open runs."""

import math

from tradewind.scheduler.loops.owned_work import OwnedWork
from tradewind.scheduler.ports.due_sets import OpenRuns
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.ports.waking import Work
from tradewind.scheduler.use_cases.supervise_runs import SuperviseRuns
from tradewind.scheduler.use_cases.wake_owners import WakeOwners
from tradewind.server.clock import Clock

_RUNS_AT_ONCE = 500
"""The most runs to look after together, of all partitions: as many are read each time, however few of them are due."""
_RETRY_S = 1.0


def open_runs_loop(
    open_runs: OpenRuns, supervise: SuperviseRuns, wake: WakeOwners, clock: Clock, poll_s: float
) -> OwnedWork:
    """Return the loop that looks after open runs, and sleeps until the earliest check is due."""

    async def work(epochs: Epochs) -> float:
        checks = await open_runs.check(list(epochs), _RUNS_AT_ONCE // max(1, len(epochs)))
        due = [run for check in checks.values() for run in check.due]
        await supervise(due, epochs)
        upcoming = [check.next_ms for check in checks.values() if check.next_ms is not None]
        wait_s = max(0.0, (min(upcoming) - clock.now_ms()) / 1000) if upcoming else math.inf
        return min(wait_s, _RETRY_S) if due else wait_s

    return OwnedWork("open_runs_not_looked_after", work, wake, Work.RUNS, poll_s, _RETRY_S)
