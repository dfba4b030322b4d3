"""Publishes an event to the triggers that listen to it."""

import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from tradewind.trigger.domain.errors import QueueFull
from tradewind.trigger.domain.event import Event, Outcome
from tradewind.trigger.ports.queues import FiringOrder, QueueStore
from tradewind.trigger.ports.wakes import EarlierDue
from tradewind.trigger.use_cases.receivers import QueueReceivers

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Published:
    """The result of publishing an event: how many triggers it matched, and what became of their firings.

    They were made (`fired`), existed already (`duplicates`) or were `dropped` because too many waited. `listeners`
    counts the triggers that listen to events of this name, matched or not.
    """

    event_id: str
    matched: int
    fired: int
    duplicates: int
    dropped: int
    listeners: int


class PublishEvent:
    """Decides which triggers an event fires, and makes one firing of each."""

    def __init__(self, queues: QueueStore, receivers: QueueReceivers) -> None:
        self._queues = queues
        self._receivers = receivers

    async def __call__(self, name: str, payload_json: str, payload: Mapping[str, Any], event_id: str) -> Published:
        """Publish an event. Raises QueueFull when every trigger that it matches has too many firings waiting."""
        event = Event(event_id or secrets.token_hex(16), name, payload_json)
        orders = []
        listeners = await self._queues.listeners(name)
        for listener in listeners:
            kind = listener.schedule.event
            if kind is not None and kind.filter.matches(payload):
                start_ms = listener.schedule.start_ms
                orders.append(FiringOrder(listener.partition, listener.queue, listener.trigger_id, start_ms))
        outcomes = await self._queues.fire(orders, event) if orders else []
        for order, outcome in zip(orders, outcomes, strict=True):
            if outcome is Outcome.FIRED:
                self._receivers.notify(EarlierDue(order.partition, 0, order.queue))
            elif outcome is Outcome.FULL:
                _log.error(
                    "firing_dropped",
                    queue=order.queue,
                    trigger_id=order.trigger_id,
                    event_id=event.id,
                    hint="its receivers are away or too slow; publish the same event again when they have caught up",
                )
        found = Counter(outcomes)
        if found[Outcome.FULL] and found[Outcome.FULL] == len(outcomes):
            raise QueueFull(
                f'too many firings are waiting for each trigger that event "{event.id}" matches; publish the same '
                "event again when their receivers have caught up"
            )
        return Published(
            event.id,
            len(outcomes) - found[Outcome.GONE],
            found[Outcome.FIRED],
            found[Outcome.DUPLICATE],
            found[Outcome.FULL],
            len(listeners),
        )
