"""Wakes the loop that has work to do in a partition, on whichever replica owns it."""

import asyncio

from tradewind.scheduler.ports.waking import EVERY, WakeChannel, WakeUp, Work
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.server.partitions import partition_of


class WakeOwners:
    """Implements WakeOwner: an alarm for each kind of work on this replica, and messages to the other replicas.

    No message is sent if the other owner polls in time by itself, every `poll_s`, or has already been notified.
    """

    def __init__(self, channel: WakeChannel, ownership: OwnPartitions, background: Background, poll_s: float) -> None:
        self._channel = channel
        self.ownership = ownership
        self._background = background
        self._poll_ms = poll_s * 1000
        self._sent_s: dict[tuple[Work, int], float] = {}
        self.alarms = {work: Alarm() for work in Work}

    def __call__(self, work: Work, key: str, in_ms: int) -> None:
        partition = partition_of(key)
        if self.ownership.owns(partition):
            self.alarms[work].ring_in(in_ms)
        elif in_ms < self._poll_ms:
            self._send(WakeUp(work, partition, in_ms))

    def receive(self, wake_up: WakeUp) -> None:
        """Take a message from a replica, if it is about a partition owned here, or about all partitions."""
        if wake_up.partition == EVERY or self.ownership.owns(wake_up.partition):
            self.alarms[wake_up.work].ring_in(wake_up.in_ms)

    def missed(self) -> None:
        """Ring all alarms: messages may have been lost."""
        for alarm in self.alarms.values():
            alarm.ring_in(0)

    def _send(self, wake_up: WakeUp) -> None:
        now_s = asyncio.get_running_loop().time()
        at_s = now_s + wake_up.in_ms / 1000
        # The owner has been woken for a time before that; then it finds when to check next.
        if now_s < self._sent_s.get((wake_up.work, wake_up.partition), 0) <= at_s:
            return
        self._sent_s[wake_up.work, wake_up.partition] = at_s
        self._background.begin(self._channel.publish(wake_up), "waking of another replica")
