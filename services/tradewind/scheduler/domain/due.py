"""Due triggers of flows, and the answers to them."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DueEvent:
    """An event that a flow is due for, as it was published; `payload_json` is a JSON object as text, "" for none."""

    event_id: str
    name: str
    payload_json: str = ""

    @property
    def inputs_json(self) -> str:
        """The inputs of the cycle that begins on the event, as a JSON object.

        They are the fields of the payload plus `event`, which holds the event's id and name, unless the payload has a
        field of that name.
        """
        inputs = json.loads(self.payload_json) if self.payload_json else {}
        event_field = {"event": {"id": self.event_id, "name": self.name}}
        return json.dumps(event_field | inputs, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class DueFlow:
    """A flow that was found due, at `now_ms` by the store's clock, for a planned time or for an event.

    The planned time of an event is when it came or a moment later: no two events have the same. `token` names the
    trigger service's lease on the trigger, `traceparent` the trace that its firing began.
    """

    flow_id: str
    planned_ms: int
    now_ms: int
    schedule_epoch: int
    token: str
    traceparent: str = ""
    event: DueEvent | None = None


@dataclass(frozen=True, slots=True)
class DueAnswer:
    """Answer to a due trigger: when the flow is due next, that it no longer is, or that the trigger must come again.

    `next_ms` is the next planned time, 0 or less for none. With an `error`, the same planned time comes again after
    `retry_ms`, however often this is the answer; when that is -1, the trigger service decides when.
    """

    token: str
    next_ms: int = 0
    retry_ms: int = -1
    error: str = ""
