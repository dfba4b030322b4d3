"""Due triggers of flows, and what they are answered."""

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
        """The inputs of the cycle that begins on it, as a JSON object.

        They are the fields of its payload and, unless that has a field of this name, `event` with the event's id and
        name.
        """
        inputs = json.loads(self.payload_json) if self.payload_json else {}
        told = {"event": {"id": self.event_id, "name": self.name}}
        return json.dumps(told | inputs, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class DueFlow:
    """A flow is due at a planned time, or for an event, which it was found to be at `now_ms` by the store's clock.

    No two events have the same planned time: it is when the event came, or a moment later. `token` names the lease
    under which the trigger service says so, `traceparent` the trace that its firing began.
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
    """What a due trigger is answered: when the flow is due next, that it is due no more, or to come again.

    `next_ms` is a planned time, 0 or less for no more. With an `error` the same planned time comes again: after
    `retry_ms`, however often that is said, or as the trigger service thinks fit when that is -1.
    """

    token: str
    next_ms: int = 0
    retry_ms: int = -1
    error: str = ""
