"""Requests as values of the domain; every fault of a request is told at once, with its path."""

from typing import Annotated

import msgspec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import check_identifier
from tradewind.server.paging import page_position, page_token
from tradewind.server.partitions import PARTITIONS
from tradewind.trigger.domain.schedule import LAST_MS, Schedule
from tradewind.trigger.domain.trigger import TriggerDraft
from tradewind.trigger.ports import Position
from tradewind.trigger.use_cases.find_triggers import Cursor

MAX_EPOCH = 2**53 - 1
"""Beyond it the store's numbers are not exact."""

MAX_CREDITS = 10_000
DEFAULT_CREDITS = 1_000

_check_json = msgspec.json.Decoder(msgspec.Raw).decode


class _CursorShape(msgspec.Struct, array_like=True):
    partition: Annotated[int, msgspec.Meta(ge=0, lt=PARTITIONS)]
    claimed: bool
    score: int | None
    id: str


class Faults(list[Violation]):
    """The violations found so far."""

    def say(self, path: str, message: str) -> None:
        self.append(Violation(path, message))

    def identifier(self, path: str, value: str) -> None:
        if (fault := check_identifier(path, value)) is not None:
            self.append(fault)

    def epoch(self, path: str, value: int) -> None:
        if not 0 <= value <= MAX_EPOCH:
            self.say(path, f"must be 0 to 2^53 - 1, is {value}")

    def time_ms(self, path: str, time: Timestamp) -> int:
        """Return whole milliseconds since the epoch; finer parts are cut off."""
        milliseconds = time.seconds * 1000 + time.nanos // 1_000_000
        if 0 <= milliseconds <= LAST_MS and 0 <= time.nanos < 1_000_000_000:
            return milliseconds
        self.say(path, "must be a time from 1970 to 9999")
        return 0

    def span_ms(self, path: str, span: Duration, least: int, *, exact: bool = False) -> int:
        """Return a duration of at least `least` milliseconds; finer parts are rounded up, or wrong when `exact`."""
        milliseconds, rest = divmod(span.seconds * 1_000_000_000 + span.nanos, 1_000_000)
        milliseconds += rest > 0
        if not least <= milliseconds <= LAST_MS:
            self.say(path, f"must be {least} ms to {LAST_MS} ms, is {milliseconds} ms")
        elif exact and rest:
            self.say(path, "must be a whole number of milliseconds")
        return milliseconds

    def refuse(self) -> None:
        """Raise InvalidInput when there are any."""
        if self:
            raise InvalidInput(self)


def draft(request: pb2.SaveTriggerRequest, max_payload_bytes: int) -> TriggerDraft:
    """Return the trigger to be saved, its id empty when one is to be made."""
    trigger, faults = request.trigger, Faults()
    if not request.HasField("trigger"):
        faults.say("trigger", "must be set")
    if trigger.trigger_id:
        faults.identifier("trigger.trigger_id", trigger.trigger_id)
    faults.identifier("trigger.partition_key", trigger.partition_key)
    faults.epoch("trigger.epoch", trigger.epoch)
    anchor_ms, interval_ms = _schedule(trigger.schedule, faults)
    _check_payload(trigger.payload_json, max_payload_bytes, faults)
    faults.refuse()
    return TriggerDraft(
        trigger.trigger_id,
        trigger.partition_key,
        Schedule(anchor_ms, interval_ms),
        trigger.payload_json,
        trigger.epoch,
    )


def _schedule(schedule: trigger_pb2.Schedule, faults: Faults) -> tuple[int, int]:
    """Return anchor and interval; 0 for what is missing."""
    path = "trigger.schedule"
    if schedule.HasField("once"):
        return _required_time(f"{path}.once.at", schedule.once, "at", faults), 0
    if not schedule.HasField("interval"):
        faults.say(path, "must be set: once or interval")
        return 0, 0
    interval_ms = 0
    if schedule.interval.HasField("interval"):
        interval_ms = faults.span_ms(f"{path}.interval.interval", schedule.interval.interval, least=1, exact=True)
    else:
        faults.say(f"{path}.interval.interval", "must be set, to at least 1 ms")
    return _required_time(f"{path}.interval.anchor", schedule.interval, "anchor", faults), interval_ms


def _required_time(
    path: str, message: trigger_pb2.OnceSchedule | trigger_pb2.IntervalSchedule, field: str, faults: Faults
) -> int:
    if message.HasField(field):  # type: ignore[arg-type]
        return faults.time_ms(path, getattr(message, field))
    faults.say(path, "must be set")
    return 0


def _check_payload(payload_json: str, max_bytes: int, faults: Faults) -> None:
    size = len(payload_json.encode())
    if size > max_bytes:
        faults.say("trigger.payload_json", f"must have at most {max_bytes} bytes, has {size}")
    elif payload_json:
        try:
            _check_json(payload_json)
        except msgspec.DecodeError as error:
            faults.say("trigger.payload_json", f"is not JSON: {error}")
        except RecursionError:
            faults.say("trigger.payload_json", "is nested too deeply")


def reference(request: pb2.FindTriggerRequest | pb2.RemoveTriggerRequest, epoch: int = 0) -> None:
    """Check what names a trigger."""
    faults = Faults()
    faults.identifier("trigger_id", request.trigger_id)
    faults.identifier("partition_key", request.partition_key)
    faults.epoch("epoch", epoch)
    faults.refuse()


def up_to_ms(request: pb2.FindDueRequest) -> int:
    """Return the time asked for, 0 for now."""
    if not request.HasField("up_to"):
        return 0
    faults = Faults()
    milliseconds = faults.time_ms("up_to", request.up_to)
    faults.refuse()
    return max(1, milliseconds)


def cursor(token: str) -> Cursor:
    """Return where a listing goes on."""
    at = page_position(token, _CursorShape)
    if at is None:
        return Cursor()
    return Cursor(at.partition, at.claimed, None if at.score is None else Position(at.score, at.id))


def token_of(at: Cursor | None) -> str:
    """Return the page token of a place in a listing, "" for its end."""
    if at is None:
        return ""
    score, id = (at.after.score, at.after.id) if at.after else (None, "")
    return page_token(_CursorShape(at.partition, at.claimed, score, id))


def credits(request: pb2.ReceiveDueRequest) -> int:
    """Return how many unacknowledged triggers a receiver holds at most."""
    if 0 <= request.credits <= MAX_CREDITS:
        return request.credits or DEFAULT_CREDITS
    raise InvalidInput([Violation("credits", f"must be 0 to {MAX_CREDITS}, is {request.credits}")])


def subscriptions(request: pb2.ReceiveDueRequest) -> list[tuple[int, int]]:
    """Return the wanted (partition, epoch); checks those not wanted any more, too."""
    faults = Faults()
    for at, each in enumerate(request.subscribe):
        _check_partition(f"subscribe[{at}].partition", each.partition, faults)
        faults.epoch(f"subscribe[{at}].epoch", each.epoch)
    for at, partition in enumerate(request.unsubscribe):
        _check_partition(f"unsubscribe[{at}]", partition, faults)
    faults.refuse()
    return [(each.partition, each.epoch) for each in request.subscribe]


def _check_partition(path: str, partition: int, faults: Faults) -> None:
    if not 0 <= partition < PARTITIONS:
        faults.say(path, f"must be 0 to {PARTITIONS - 1}, is {partition}")
