"""Turns requests into values of the domain; reports every fault of a request at once, with its path."""

from typing import Annotated, Protocol

import msgspec

from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.json_depth import check_depth
from tradewind.server.paging import Paged, page_of, page_token
from tradewind.server.partitions import PARTITIONS
from tradewind.trigger.domain.trigger import TriggerDraft
from tradewind.trigger.ports.triggers import Position
from tradewind.trigger.rpc import schedule_mapping
from tradewind.trigger.rpc.faults import Faults
from tradewind.trigger.use_cases.find_triggers import Cursor
from tradewind.trigger.use_cases.parcel import Opening

MAX_CREDITS = 10_000
MAX_LEAD_MS = 1_000
MAX_LISTENERS_OF = 10
MAX_EPOCHS = 1_000
DEFAULT_CREDITS = 1_000

_decode = msgspec.json.Decoder().decode


class _CursorShape(msgspec.Struct, array_like=True):
    partition: Annotated[int, msgspec.Meta(ge=0, lt=PARTITIONS)]
    claimed: bool
    score: int | None
    id: str


def draft(request: pb2.SaveTriggerRequest, max_payload_bytes: int, now_ms: int) -> TriggerDraft:
    """Return the trigger to be saved at `now_ms`; its id is empty when the service is to make one."""
    trigger, faults = request.trigger, Faults()
    if not request.HasField("trigger"):
        faults.add("trigger", "must be set")
    if trigger.trigger_id:
        faults.identifier("trigger.trigger_id", trigger.trigger_id)
    if trigger.queue:
        faults.identifier("trigger.queue", trigger.queue)
    else:
        faults.identifier("trigger.partition_key", trigger.partition_key)
    faults.epoch("trigger.epoch", trigger.epoch)
    schedule = schedule_mapping.read(trigger.schedule, "trigger.schedule", faults, now_ms)
    payload("trigger.payload_json", trigger.payload_json, max_payload_bytes, faults)
    faults.refuse()
    assert schedule is not None, "its faults were reported"
    return TriggerDraft(trigger.trigger_id, trigger.partition_key, schedule, trigger.payload_json, trigger.epoch)


def payload(path: str, payload_json: str, max_bytes: int, faults: Faults) -> object:
    """Return the value of a payload's JSON text, None if it is empty or has faults, which are added to `faults`."""
    size = len(payload_json.encode())
    if size > max_bytes:
        faults.add(path, f"must have at most {max_bytes} bytes, has {size}")
    elif payload_json:
        try:
            value = _decode(payload_json)
            check_depth(payload_json)
            return value
        except msgspec.ValidationError as error:
            faults.add(path, f"cannot be read: {error}")
        except msgspec.DecodeError as error:
            faults.add(path, f"is not JSON: {error}")
        except RecursionError:
            faults.add(path, "is nested too deeply")
    return None


def reference(request: pb2.FindTriggerRequest | pb2.RemoveTriggerRequest, epoch: int = 0) -> None:
    """Check the fields that identify a trigger."""
    faults = Faults()
    faults.identifier("trigger_id", request.trigger_id)
    place(request, faults)
    faults.epoch("epoch", epoch)
    faults.refuse()


def trigger_ids(request: pb2.FindEpochsRequest) -> list[str]:
    """Check and return the ids of many triggers."""
    faults, ids = Faults(), list(request.trigger_ids)
    if not 1 <= len(ids) <= MAX_EPOCHS:
        faults.add("trigger_ids", f"must be 1 to {MAX_EPOCHS}, are {len(ids)}")
    else:
        for place, trigger_id in enumerate(ids):
            faults.identifier(f"trigger_ids[{place}]", trigger_id)
    faults.refuse()
    return ids


class _Placed(Protocol):
    queue: str
    partition_key: str


def place(request: _Placed, faults: Faults) -> None:
    """Check the fields that say where a trigger is."""
    if request.queue:
        faults.identifier("queue", request.queue)
    else:
        faults.identifier("partition_key", request.partition_key)


def queue(name: str) -> str:
    """Check and return the name of a queue, empty for that of the flows."""
    faults = Faults()
    if name:
        faults.identifier("queue", name)
    faults.refuse()
    return name


def require_queue(name: str) -> None:
    """Refuse a request that names no queue."""
    if not name:
        message = "must be set: only the triggers of a queue are listed; the scheduler lists flows (ListFlows)"
        raise InvalidInput([Violation("queue", message)])


def up_to_ms(request: pb2.FindDueRequest) -> int:
    """Return the time asked for, 0 for now."""
    if not request.HasField("up_to"):
        return 0
    faults = Faults()
    milliseconds = faults.time_ms("up_to", request.up_to)
    faults.refuse()
    return max(1, milliseconds)


class _Listed(Paged, Protocol):
    queue: str


def page(request: _Listed) -> tuple[Cursor, int]:
    """Return where a page of a listing begins, and how many triggers it has; check the queue as well."""
    named = {"queue": request.queue} if request.queue else {}
    at, size = page_of(request, _CursorShape, **named)
    if at is None:
        return Cursor(), size
    return Cursor(at.partition, at.claimed, None if at.score is None else Position(at.score, at.id)), size


def cursor_token(at: Cursor | None) -> str:
    """Return the page token of a place in a listing, "" at its end."""
    if at is None:
        return ""
    score, id = (at.after.score, at.after.id) if at.after else (None, "")
    return page_token(_CursorShape(at.partition, at.claimed, score, id))


def opening(first: pb2.ReceiveDueRequest) -> Opening:
    """Return what a receiver asks for in its first message."""
    faults = Faults()
    if first.queue:
        faults.identifier("queue", first.queue)
    if not 0 <= first.credits <= MAX_CREDITS:
        faults.add("credits", f"must be 0 to {MAX_CREDITS}, is {first.credits}")
    lead_ms = first.lead.ToMilliseconds()
    if not 0 <= lead_ms <= MAX_LEAD_MS:
        faults.add("lead", f"must be 0 to {MAX_LEAD_MS} ms, is {lead_ms} ms")
    if first.queue and first.listeners_of:
        faults.add("listeners_of", "must be empty on a stream of a queue")
    if len(first.listeners_of) > MAX_LISTENERS_OF:
        faults.add("listeners_of", f"must name at most {MAX_LISTENERS_OF} events, names {len(first.listeners_of)}")
    else:
        for at, name in enumerate(first.listeners_of):
            faults.identifier(f"listeners_of[{at}]", name)
    faults.refuse()
    return Opening(first.credits or DEFAULT_CREDITS, first.queue, lead_ms, frozenset(first.listeners_of))


def subscriptions(request: pb2.ReceiveDueRequest, of_queue: str) -> list[tuple[int, int]]:
    """Return the (partition, epoch) to subscribe to; check those to unsubscribe from as well."""
    faults = Faults()
    if of_queue and (request.subscribe or request.unsubscribe):
        faults.add("subscribe", "must be empty on a stream of a queue")
    if request.queue not in ("", of_queue):
        faults.add("queue", "can only be set in the first message")
    for at, each in enumerate(request.subscribe):
        _check_partition(f"subscribe[{at}].partition", each.partition, faults)
        faults.epoch(f"subscribe[{at}].epoch", each.epoch)
    for at, partition in enumerate(request.unsubscribe):
        _check_partition(f"unsubscribe[{at}]", partition, faults)
    faults.refuse()
    return [(each.partition, each.epoch) for each in request.subscribe]


def _check_partition(path: str, partition: int, faults: Faults) -> None:
    if not 0 <= partition < PARTITIONS:
        faults.add(path, f"must be 0 to {PARTITIONS - 1}, is {partition}")
