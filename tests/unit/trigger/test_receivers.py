"""The deliveries of one process, queue by queue."""

from tradewind.trigger.ports.wakes import EarlierDue
from tradewind.trigger.use_cases.receivers import QueueReceivers


class Receiver:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.expected: list[tuple[int, int]] = []

    def expect(self, partition: int, due_ms: int) -> None:
        self.expected.append((partition, due_ms))

    def recheck_receiver(self, partition: int, session: str) -> None:
        raise AssertionError("only streams of the flows take over partitions")

    def listener_added(self, name: str) -> None:
        raise AssertionError("only streams of the flows are told of new listeners")

    def poll_now(self) -> None:
        self.expected.append((-1, -1))

    def store_lost(self) -> None:
        raise AssertionError("receivers of queues have said nothing that they could say again")


async def test_queue_is_forgotten_once_nobody_receives_it() -> None:
    receivers, receiver = QueueReceivers(), Receiver()
    received = receivers.of("received")
    received.add(receiver)
    idle = receivers.of("idle")

    receivers.of("another")

    assert receivers.of("received") is received
    assert receivers.of("idle") is not idle


async def test_receiver_of_a_queue_is_told_of_that_queue_alone() -> None:
    receivers, receiver = QueueReceivers(), Receiver()
    receivers.of("q").add(receiver)

    receivers.notify(EarlierDue(3, 100, "q"))
    receivers.notify(EarlierDue(3, 200, "another"))
    receivers.notify(EarlierDue(3, 300, ""))
    receivers.poll_all()
    receivers.store_lost()

    assert receiver.expected == [(3, 100), (-1, -1)]
