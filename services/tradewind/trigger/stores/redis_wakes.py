"""The wake channels in Redis: one per partition, all over the one subscriber connection of the process."""

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from tradewind.server.partitions import PARTITIONS
from tradewind.server.redis.subscriber import Subscriber
from tradewind.trigger.domain.claim import Subscription
from tradewind.trigger.ports.wakes import EarlierDue, NewListener, NewReceiver, Wake
from tradewind.trigger.stores.keys import Keys

_log = structlog.get_logger(__name__)


class RedisWakeChannel:
    """Receives what scripts publish: `due <ms> [queue]`, `receiver <epoch> <session>` or `listener <event>`."""

    def __init__(self, subscriber: Subscriber, keys: Keys) -> None:
        self._subscriber = subscriber
        self._keys = keys

    async def listen(self, on_wake: Callable[[Wake], None], on_gap: Callable[[], None]) -> Callable[[], None]:
        def deliver(partition: int, _channel: str, message: bytes) -> None:
            wake = _wake(partition, message.decode(errors="replace"))
            if wake is None:
                _log.warning("unknown_wake", partition=partition, message=message[:100])
            else:
                on_wake(wake)

        ends = await asyncio.gather(
            *(
                # All channels share a connection, so it is enough if one of them reports gaps.
                self._subscriber.subscribe(self._keys.wake(at), partial(deliver, at), on_gap if at == 0 else None)
                for at in range(PARTITIONS)
            )
        )

        def end() -> None:
            for each in ends:
                each()

        return end


def _wake(partition: int, message: str) -> Wake | None:
    match message.split(" "):
        case ["due", due_ms, *queue] if due_ms.isdecimal() and len(queue) < 2:
            return EarlierDue(partition, int(due_ms), "".join(queue))
        case ["receiver", epoch, session] if epoch.isdecimal():
            return NewReceiver(Subscription(partition, int(epoch), session))
        case ["listener", name]:
            return NewListener(partition, name)
    return None
