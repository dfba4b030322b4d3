"""The receivers of this process, and passing changes on to them."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from tradewind.server.side_tasks import SideTasks
from tradewind.trigger.ports.wakes import EarlierDue, NewListener, NewReceiver, Wake

Result = TypeVar("Result")


class Receiver(Protocol):
    """One open delivery, as the rest of the process sees it."""

    def expect(self, partition: int, due_ms: int) -> None:
        """Note that something in the partition is due at `due_ms`."""
        ...

    def recheck_receiver(self, partition: int, session: str) -> None:
        """Check who receives the partition, because this session has subscribed to it."""
        ...

    def listener_added(self, name: str) -> None:
        """Note that a trigger has begun to listen to events of this name."""
        ...

    def poll_now(self) -> None:
        """Ask the store what is due, because messages may have been lost."""
        ...

    def store_lost(self) -> None:
        """End the stream, because the store was away and may have lost its latest writes."""
        ...


class Receivers:
    """The open deliveries of a queue, or of the flows, in this process, and their unfinished work."""

    def __init__(self) -> None:
        self._open: dict[Receiver, None] = {}
        self._tasks = SideTasks()
        self._settling = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Whether there is an open delivery or unfinished work."""
        return bool(self._open or self._tasks)

    def add(self, receiver: Receiver) -> None:
        """Begin to notify a delivery of changes."""
        self._open[receiver] = None

    def remove(self, receiver: Receiver) -> None:
        """Stop notifying a delivery of changes."""
        self._open.pop(receiver, None)

    def notify(self, wake: Wake) -> None:
        """Pass a change on to the deliveries that it concerns."""
        match wake:
            case EarlierDue(partition, due_ms, _):
                for receiver in self._open:
                    receiver.expect(partition, due_ms)
            case NewReceiver(new):
                for receiver in self._open:
                    receiver.recheck_receiver(new.partition, new.session)
            case NewListener(_, name):
                for receiver in self._open:
                    receiver.listener_added(name)

    def poll_all(self) -> None:
        """Let every delivery ask the store, because changes may have been missed."""
        for receiver in self._open:
            receiver.poll_now()

    def store_lost(self) -> None:
        """End every stream, because the store was away and may have lost its latest writes."""
        for receiver in self._open:
            receiver.store_lost()

    def run_to_end(self, work: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
        """Run work to its end, even if the delivery that waits for it is cut off meanwhile.

        If a command is cut off on its way to the store, nobody knows whether it took effect; and before Python 3.12 a
        client that is cancelled while it writes to its socket forgets the cancellation.
        """
        task = self._tasks.task(work)
        # Retrieve the exception, so that asyncio does not log a failure that nobody waits for.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work to its end without waiting for it."""
        _ = self.run_to_end(work)

    async def pause(self, seconds: float) -> bool:
        """Wait before another try and return True; return False at once when it is time to settle."""
        try:
            async with asyncio.timeout(seconds):
                await self._settling.wait()
        except TimeoutError:
            return True
        return False

    async def settle(self) -> None:
        """Wait until all work is done; from now on nothing is tried again."""
        self._settling.set()
        await self._tasks.settle()


class QueueReceivers:
    """The open deliveries of this process, queue by queue; the flows are the queue without a name."""

    def __init__(self) -> None:
        self._by_queue: dict[str, Receivers] = {}

    def of(self, queue: str) -> Receivers:
        """Return the deliveries of a queue."""
        if queue not in self._by_queue:
            self._by_queue = {name: each for name, each in self._by_queue.items() if each.busy}
            self._by_queue[queue] = Receivers()
        return self._by_queue[queue]

    def notify(self, wake: Wake) -> None:
        """Pass a change on to the deliveries that it concerns."""
        # Only streams of the flows take over partitions, or have new listeners reported.
        receivers = self._by_queue.get(wake.queue if isinstance(wake, EarlierDue) else "")
        if receivers is not None:
            receivers.notify(wake)

    def poll_all(self) -> None:
        """Let every delivery ask the store, because changes may have been missed."""
        for receivers in self._by_queue.values():
            receivers.poll_all()

    def store_lost(self) -> None:
        """Let the schedulers connect again, because the store was away and may have lost what they said last.

        Receivers of queues have said nothing that they could say again.
        """
        if (of_flows := self._by_queue.get("")) is not None:
            of_flows.store_lost()

    async def settle(self) -> None:
        """Wait until all work is done; from now on nothing is tried again."""
        await asyncio.gather(*(receivers.settle() for receivers in self._by_queue.values()))
