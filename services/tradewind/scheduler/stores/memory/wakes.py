"""Wakes other replicas, in memory."""

from collections.abc import Callable

from tradewind.scheduler.ports.waking import WakeUp
from tradewind.scheduler.stores.memory.data import Data


class MemoryWakeChannel:
    """Implements WakeChannel; nothing is ever missed."""

    def __init__(self, data: Data) -> None:
        self._listeners = data.wake_listeners

    async def publish(self, wake_up: WakeUp) -> None:
        for receive in list(self._listeners):
            receive(wake_up)

    async def listen(self, receive: Callable[[WakeUp], None], missed: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(receive)
        return lambda: self._listeners.remove(receive)
