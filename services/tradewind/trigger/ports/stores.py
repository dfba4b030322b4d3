"""All stores of the trigger service."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tradewind.trigger.ports.claims import ClaimStore
from tradewind.trigger.ports.queues import QueueStore
from tradewind.trigger.ports.triggers import TriggerStore
from tradewind.trigger.ports.wakes import WakeChannel


class TriggersOfQueue(TriggerStore, ClaimStore, Protocol):
    """The triggers of a queue, or of the flows, and the claims on them."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of the trigger service; `of_queue` returns that of a queue, or for "" that of the flows."""

    of_queue: Callable[[str], TriggersOfQueue]
    queues: QueueStore
    wakes: WakeChannel
