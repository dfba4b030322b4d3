"""Wakes other replicas, in memory."""

from collections.abc import Callable

from tradewind.scheduler.ports.waking import WakeUp
from tradewind.scheduler.stores.memory.data import Data


class MemoryWakeChannel:
    """Implements WakeChannel; nothing is ever missed."""

    def __init__(self, data: Data) -> None:
        self._ears = data.ears

    async def tell(self, wake_up: WakeUp) -> None:
        for hear in list(self._ears):
            hear(wake_up)

    async def listen(self, hear: Callable[[WakeUp], None], missed: Callable[[], None]) -> Callable[[], None]:
        self._ears.append(hear)
        return lambda: self._ears.remove(hear)
