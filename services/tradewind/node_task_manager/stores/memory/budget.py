"""Retry budgets in memory: how many further attempts a flow may have, given the attempts begun within a minute."""

from collections import Counter
from collections.abc import Callable

BUCKET_MS = 5_000
BUCKETS = 13
"""The current bucket, and those of the minute before."""


class RetryBudgets:
    """Counts attempts of nodes that may be tried again; `clock` returns epoch ms.

    Within a minute a spender may have `least` further attempts, or `percent` of the attempts begun if that is more.
    """

    def __init__(self, least: int, percent: int, clock: Callable[[], int]) -> None:
        self._least = least
        self._percent = percent
        self._clock = clock
        self._begun: dict[str, Counter[int]] = {}
        self._retried: dict[str, Counter[int]] = {}

    def begin(self, spender: str) -> None:
        """Count an attempt that begins."""
        self._begun.setdefault(spender, Counter())[self._clock() // BUCKET_MS] += 1

    def refuse(self, spender: str) -> str:
        """Grant a further attempt, count it and return ""; or return why not."""
        most = max(self._least, self._recent(self._begun, spender) * self._percent // 100)
        if self._recent(self._retried, spender) >= most:
            return f"RETRY_BUDGET_EXHAUSTED: {spender} has used all {most} retries of this minute"
        self._retried.setdefault(spender, Counter())[self._clock() // BUCKET_MS] += 1
        return ""

    def forget(self, spender: str) -> None:
        """Drop the counts of a spender."""
        self._begun.pop(spender, None)
        self._retried.pop(spender, None)

    def _recent(self, counts: dict[str, Counter[int]], spender: str) -> int:
        oldest = self._clock() // BUCKET_MS - BUCKETS
        return sum(count for bucket, count in counts.get(spender, Counter()).items() if bucket > oldest)
