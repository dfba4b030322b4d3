"""Collects all faults of a request, to report them at once."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import check_identifier
from tradewind.server.partitions import MAX_EPOCH
from tradewind.server.schedules.grids import LAST_MS
from tradewind.server.timestamps import instant_fault, instant_ms


class Faults(list[Violation]):
    """The violations found so far."""

    def add(self, path: str, message: str) -> None:
        self.append(Violation(path, message))

    def identifier(self, path: str, value: str) -> None:
        if (fault := check_identifier(path, value)) is not None:
            self.append(fault)

    def epoch(self, path: str, value: int) -> None:
        if not 0 <= value <= MAX_EPOCH:
            self.add(path, f"must be 0 to 2^53 - 1, is {value}")

    def time_ms(self, path: str, time: Timestamp) -> int:
        """Return whole milliseconds since the epoch; fractions are cut off."""
        if (fault := instant_fault(path, time)) is not None:
            self.append(fault)
        return max(0, instant_ms(time))

    def span_ms(self, path: str, span: Duration, least: int, most: int = LAST_MS, *, exact: bool = False) -> int:
        """Return a duration of `least` to `most` milliseconds; fractions are rounded up, or a fault if `exact`."""
        span_ms, rest = divmod(span.seconds * 1_000_000_000 + span.nanos, 1_000_000)
        span_ms += rest > 0
        if not least <= span_ms <= most:
            self.add(path, f"must be {least} ms to {most} ms, is {span_ms} ms")
        elif exact and rest:
            self.add(path, "must be a whole number of milliseconds")
        return span_ms

    def refuse(self) -> None:
        """Raise InvalidInput if there are any faults."""
        if self:
            raise InvalidInput(self)
