"""The grid of planned times of a flow: anchored at its first one, so that lateness never adds up."""


def next_planned(planned_ms: int, interval_ms: int, now_ms: int) -> int:
    """Return the first time of the grid planned + k * interval, k at least 1, that lies after now.

    All in epoch milliseconds, exact. Times that passed meanwhile are left out, never caught up with. Raises ValueError
    for an interval of 0 (which means once) or less.
    """
    if interval_ms <= 0:
        raise ValueError("a flow without an interval has no next planned time")
    steps = max(1, (now_ms - planned_ms) // interval_ms + 1)
    return planned_ms + steps * interval_ms
