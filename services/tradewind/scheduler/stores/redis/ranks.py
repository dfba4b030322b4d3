"""The score of a run in the index of its flow's cycles, as in lua/partition.lua."""

from tradewind.scheduler.domain.run_name import RunName

RUNS = 1024
"""The most runs that a cycle may have."""
STOPPING, OPEN = 2**45, 2**46
"""What is added to the scores of runs that have been asked to stop, and of other open runs."""


def rank(run: RunName) -> int:
    """Return the score of a run that has ended: by the number of its cycle, then its own."""
    return run.cycle * RUNS + run.run
