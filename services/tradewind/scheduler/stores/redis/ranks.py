"""Where a run stands in the index of its flow's cycles, as lua/partition.lua says it."""

from tradewind.scheduler.domain.run_name import RunName

RUNS = 1024
"""Runs that a cycle may have."""
STOPPING, OPEN = 2**45, 2**46
"""How much higher those stand that are asked to stop, and those that go on."""


def rank(run: RunName) -> int:
    """Return the score of a run that has ended: by the number of its cycle, then its own."""
    return run.cycle * RUNS + run.run
