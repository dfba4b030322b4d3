"""Retry budgets in memory: how many further attempts a flow may have, given the attempts begun within a minute."""

from collections import Counter
from collections.abc import Callable

BUCKET_MS = 5_000
BUCKETS = 13
"""The current bucket, and those of the minute before."""


class RetryBudgets:
    """Counts attempts of nodes that may be tried again; `clock` returns epoch ms.

    Within a minute a flow may have `least` further attempts, or `percent` of the attempts begun if that is more.
    """

    def __init__(self, least: int, percent: int, clock: Callable[[], int]) -> None:
        self._least = least
        self._percent = percent
        self._clock = clock
        self._begun: dict[str, Counter[int]] = {}
        self._retried: dict[str, Counter[int]] = {}

    def begin(self, flow: str) -> None:
        """Count an attempt that begins."""
        self._begun.setdefault(flow, Counter())[self._clock() // BUCKET_MS] += 1

    def refuse(self, flow: str) -> str:
        """Grant a further attempt, count it and return ""; or return why not."""
        most = max(self._least, self._recent(self._begun, flow) * self._percent // 100)
        if self._recent(self._retried, flow) >= most:
            return f'RETRY_BUDGET_EXHAUSTED: flow "{flow}" has used all {most} retries of this minute'
        self._retried.setdefault(flow, Counter())[self._clock() // BUCKET_MS] += 1
        return ""

    def forget(self, flow: str) -> None:
        """Drop the counts of a flow."""
        self._begun.pop(flow, None)
        self._retried.pop(flow, None)

    def _recent(self, counts: dict[str, Counter[int]], flow: str) -> int:
        oldest = self._clock() // BUCKET_MS - BUCKETS
        return sum(count for bucket, count in counts.get(flow, Counter()).items() if bucket > oldest)
