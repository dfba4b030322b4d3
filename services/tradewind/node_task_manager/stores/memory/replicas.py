"""The list of node task managers, in memory."""

from collections.abc import Callable, Sequence


class MemoryReplicas:
    """Implements Replicas; `clock` returns epoch ms."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._until: dict[str, int] = {}

    async def check_in(self, name: str, keep_ms: int) -> Sequence[str]:
        self._until[name] = self._clock() + keep_ms
        return sorted(name for name, until in self._until.items() if until > self._clock())

    async def leave(self, name: str) -> None:
        self._until.pop(name, None)
