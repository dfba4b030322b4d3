"""Wakes other replicas through Redis."""

from collections.abc import Callable

import structlog

from tradewind.scheduler.ports.waking import WakeUp, Work
from tradewind.scheduler.stores.keys import Keys
from tradewind.server.redis.client import Client
from tradewind.server.redis.subscriber import Subscriber

_log = structlog.get_logger(__name__)


class RedisWakeChannel:
    """Implements WakeChannel, by messages `<work> <partition> <ms>`."""

    def __init__(self, client: Client, subscriber: Subscriber, keys: Keys) -> None:
        self._client = client
        self._subscriber = subscriber
        self._channel = keys.wake()

    async def publish(self, wake_up: WakeUp) -> None:
        message = f"{wake_up.work.value} {wake_up.partition} {wake_up.in_ms}"
        await self._client.call(self._channel, "PUBLISH", self._channel, message)

    async def listen(self, receive: Callable[[WakeUp], None], missed: Callable[[], None]) -> Callable[[], None]:
        def deliver(_channel: str, message: bytes) -> None:
            try:
                work, partition, in_ms = message.decode().split(" ")
                wake_up = WakeUp(Work(work), int(partition), int(in_ms))
            except ValueError:
                # A later release may know more kinds of work.
                _log.warning("unknown_wake", message=message[:100])
            else:
                receive(wake_up)

        return await self._subscriber.subscribe(self._channel, deliver, missed)
