"""The clock that deadlines go by."""

import asyncio
import time

from google.protobuf.timestamp_pb2 import Timestamp

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.api.worker.v1 import worker_service_pb2

TimedMessage = work_pb2.WorkResponse | worker_service_pb2.ExecuteRequest


class ServerClock:
    """The servers' clock, once a message has told its time: this machine's may be wrong."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._offset: float | None = None

    def sync(self, message: TimedMessage) -> None:
        """Go by the sender's clock from now on, if the message has a time."""
        if message.HasField("sent_at"):
            self._offset = _epoch_s(message.sent_at) - self._loop.time()

    @property
    def synced(self) -> bool:
        """Whether this is a server's clock; until then it is this machine's."""
        return self._offset is not None

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return self._loop.time() + self._ahead()

    def loop_time(self, at: Timestamp) -> float:
        """Return a time by the loop's clock, which nobody can set while a node runs."""
        return _epoch_s(at) - self._ahead()

    def _ahead(self) -> float:
        """Return the seconds by which this clock is ahead of the loop's."""
        return time.time() - self._loop.time() if self._offset is None else self._offset


def _epoch_s(at: Timestamp) -> float:
    return at.seconds + at.nanos / 1e9
