"""Estimates how far the store's clock is from this machine's, from readings of both."""


class StoreTime:
    """Computes the store's time from a local clock that runs evenly; both in microseconds, from any origin.

    Each time the store gave its time, that was after the local time of asking and before that of the answer; the
    offset lies in the overlap of all those intervals. When an interval does not overlap, a clock was set, and the
    estimate starts anew from there.
    """

    def __init__(self) -> None:
        self._min_offset_us = 0
        self._max_offset_us = 0
        self._has_reading = False

    @property
    def offset_us(self) -> int:
        """What to add to the local time; 0 until there is a reading."""
        return (self._min_offset_us + self._max_offset_us) // 2

    def observe(self, store_us: int, asked_us: int, answered_us: int) -> int:
        """Note that the store's clock showed `store_us` between two local times.

        Returns the least by which the two clocks must have moved apart since the last reading; 0 if they may not have
        moved.
        """
        min_offset_us, max_offset_us = store_us - answered_us, store_us - asked_us
        jump_us = 0
        if self._has_reading:
            jump_us = max(min_offset_us - self._max_offset_us, self._min_offset_us - max_offset_us, 0)
            if not jump_us:
                min_offset_us = max(min_offset_us, self._min_offset_us)
                max_offset_us = min(max_offset_us, self._max_offset_us)
        self._min_offset_us, self._max_offset_us, self._has_reading = min_offset_us, max_offset_us, True
        return jump_us
