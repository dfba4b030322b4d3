"""How far the store's clock is from this machine's, from what was seen of both."""


class StoreTime:
    """Tells the store's time from a local clock that runs evenly; both in microseconds, whatever they count from.

    Each time the store told its clock, it did so after the local time of asking and before that of its answer; the
    narrowest overlap of all those intervals holds the offset. When one does not overlap, a clock was set, and it
    starts anew from there.
    """

    def __init__(self) -> None:
        self._least_us = 0
        self._most_us = 0
        self._known = False

    @property
    def offset_us(self) -> int:
        """What to add to the local time; 0 until something was seen."""
        return (self._least_us + self._most_us) // 2

    def observe(self, store_us: int, asked_us: int, answered_us: int) -> int:
        """Take note that the store's clock showed `store_us` between two local times.

        Returns by how much, at least, the two clocks have moved apart since they were last seen; 0 when they may not
        have.
        """
        least_us, most_us = store_us - answered_us, store_us - asked_us
        jump_us = max(least_us - self._most_us, self._least_us - most_us, 0) if self._known else 0
        if self._known and not jump_us:
            least_us, most_us = max(least_us, self._least_us), min(most_us, self._most_us)
        self._least_us, self._most_us, self._known = least_us, most_us, True
        return jump_us
