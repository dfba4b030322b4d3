"""Checks requests about the triggers of a queue; reports every fault of a request at once, with its path."""

import re
from collections.abc import Mapping
from typing import Any, Protocol

from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.paging import NOT_OF_THIS_LIST, page_of, page_token
from tradewind.trigger.domain.event import trigger_of
from tradewind.trigger.rpc.faults import Faults
from tradewind.trigger.rpc.parsing import payload, place

MAX_EVENT_ID = 128
_NOTE_BYTES = 1024
_POSITION = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?", re.ASCII)


class _OfQueue(Protocol):
    queue: str
    trigger_id: str


def reference(request: _OfQueue) -> None:
    """Check the fields that identify a trigger of a queue."""
    faults = Faults()
    _check_reference(request, faults)
    faults.refuse()


def _check_reference(request: _OfQueue, faults: Faults) -> None:
    faults.identifier("trigger_id", request.trigger_id)
    if request.queue:
        faults.identifier("queue", request.queue)
    else:
        faults.add("queue", "must be set: flows are run, paused and resumed by the scheduler")


def note(request: pb2.PauseTriggerRequest) -> str:
    """Check a request to pause, and return its note, cut if it is too long."""
    reference(request)
    return request.note.encode()[:_NOTE_BYTES].decode(errors="ignore")


def event(request: pb2.PublishEventRequest, max_bytes: int) -> Mapping[str, Any]:
    """Check an event, and return its payload."""
    faults = Faults()
    faults.identifier("name", request.name)
    _check_event_id("event_id", request.event_id, faults)
    value = _payload(request.payload_json, max_bytes, faults)
    faults.refuse()
    return value


def event_name(request: pb2.CountListenersRequest) -> None:
    """Check the name of an event."""
    faults = Faults()
    faults.identifier("name", request.name)
    faults.refuse()


def firing(request: pb2.FireTriggerRequest, max_bytes: int) -> None:
    """Check a request to fire."""
    faults = Faults()
    _check_reference(request, faults)
    _check_event_id("request_id", request.request_id, faults)
    _payload(request.payload_json, max_bytes, faults)
    faults.refuse()


def dead_reference(request: pb2.RedriveTriggerRequest) -> None:
    """Check the fields that identify a dead trigger, or a dead firing of it."""
    faults = Faults()
    faults.identifier("trigger_id", request.trigger_id)
    place(request, faults)
    if request.firing_id and trigger_of(request.firing_id) != request.trigger_id:
        faults.add("firing_id", f'is not a firing of "{request.trigger_id}"; take the id from ListDeadTriggers')
    faults.refuse()


def history(request: pb2.ListFiringsRequest) -> tuple[str, int]:
    """Return the position after which a page of the fire history begins, and how many firings it has."""
    named = {"queue": request.queue} if request.queue else {"partition_key": request.partition_key}
    if request.trigger_id:
        named["trigger_id"] = request.trigger_id
    position, size = page_of(request, str, **named)
    if position is not None and not _POSITION.fullmatch(position):
        raise InvalidInput([Violation("page_token", NOT_OF_THIS_LIST)])
    return position or "", size


def history_token(position: str) -> str:
    """Return the page token of a position in the fire history, "" at its end."""
    return page_token(position or None)


def _check_event_id(path: str, id: str, faults: Faults) -> None:
    if len(id) > MAX_EVENT_ID:
        faults.add(path, f"must have at most {MAX_EVENT_ID} characters, has {len(id)}")


def _payload(payload_json: str, max_bytes: int, faults: Faults) -> Mapping[str, Any]:
    before = len(faults)
    value = payload("payload_json", payload_json, max_bytes, faults)
    if isinstance(value, dict):
        return value
    if payload_json and len(faults) == before:
        faults.add("payload_json", "must be a JSON object")
    return {}
