"""The events that cycles of a flow begin on, as defined: events with a name, or the ends of other flows."""

import json
from dataclasses import dataclass
from typing import Any

from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.fields import Fields
from tradewind.scheduler.domain.json_text import canonical_json
from tradewind.scheduler.domain.paths import join, shown
from tradewind.server.identifiers import check_identifier
from tradewind.server.quoting import listed, quoted
from tradewind.server.schedules.event_filter import EventFilter, FilterFault

FLOW_FINISHED = "flow.finished"
"""The event that is published when a cycle has ended."""
FINISHED_FIELDS = (
    *("flow_id", "cycle", "run", "run_id", "status", "end_time"),
    *("user_id", "origin", "planned_time", "start_time", "error_code"),
)
"""The fields of its payload."""
EVENT_FIELDS = ("event", "flow_finished")
MAX_FLOWS = 100
ENDINGS = tuple(status.value for status in CycleStatus if status is not CycleStatus.RUNNING)
_RESERVED = "flow."
_SHOWN_FLOWS = 3
_LONGEST_USER_ID = 128 * "u"


@dataclass(frozen=True, slots=True)
class EventSchedule:
    """Events called `name` whose payload matches `filter_json` ("" for all), or the ends of cycles of `flow_ids`.

    Only ends with one of `statuses` count, or all ends when that is empty. Cycles that run for a node of another flow
    do not count: it is up to that flow what follows their ends.
    """

    name: str = ""
    filter_json: str = ""
    flow_ids: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()

    @property
    def event_name(self) -> str:
        """The name of the events that begin cycles."""
        return self.name or FLOW_FINISHED

    def event_filter(self, user_id: str) -> str:
        """Return the filter on their payloads for a flow of this user, as JSON text, "" for all events.

        Ends of other users' flows do not count: what becomes of them is nobody else's business.
        """
        if self.name:
            return self.filter_json
        wanted: dict[str, Any] = {
            "flow_id": {"$in": list(self.flow_ids)},
            "origin": {"$ne": "sub_flow"},
            "user_id": user_id,
        }
        if self.statuses:
            wanted["status"] = {"$in": list(self.statuses)}
        return canonical_json(wanted)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs that a cycle has whichever of the events it begins on."""
        return ("event",) if self.name else ("event", *FINISHED_FIELDS)

    @property
    def description(self) -> str:
        """A description for people: `event "price"`, `the end of flow "prices" as completed`."""
        if self.name:
            return f"event {quoted(self.name)}" + (f" with {self.filter_json}" if self.filter_json else "")
        more = len(self.flow_ids) - _SHOWN_FLOWS
        flows = ", ".join(quoted(flow_id) for flow_id in self.flow_ids[:_SHOWN_FLOWS])
        flows += f" or {more} more" if more > 0 else ""
        ended = f" as {' or '.join(self.statuses)}" if self.statuses else ""
        return f"the end of flow {flows}{ended}"

    def to_weather(self) -> dict[str, Any]:
        """Return it in Weather Syntax, as a field of a schedule."""
        if self.name:
            wanted = {"filter": json.loads(self.filter_json)} if self.filter_json else {}
            return {"event": {"name": self.name, **wanted}}
        statuses = {"statuses": list(self.statuses)} if self.statuses else {}
        return {"flow_finished": {"flow_ids": list(self.flow_ids), **statuses}}


def read_event_schedule(schedule: Fields) -> EventSchedule | None:
    """Read `event` or `flow_finished` of a schedule; None when both are absent or one is at fault."""
    if schedule.get("event") is not None:
        event = schedule.nested("event")
        return _event(event) if event is not None else None
    finished = schedule.nested("flow_finished")
    return _flow_finished(finished) if finished is not None else None


def _event(fields: Fields) -> EventSchedule | None:
    fields.refuse_unknown(("name", "filter"))
    name = fields.identifier("name") or ""
    if name.startswith(_RESERVED):
        fields.fault(
            "name",
            f'{quoted(name)} is reserved, as is every name that begins with "flow."; use flow_finished with flow_ids',
        )
    wanted = fields.mapping("filter")
    text = canonical_json(wanted) if wanted else ""
    try:
        EventFilter(text)
    except FilterFault as fault:
        fields.fault("filter", str(fault))
    return None if fields.faulty else EventSchedule(name, text)


def _flow_finished(fields: Fields) -> EventSchedule | None:
    fields.refuse_unknown(("flow_ids", "statuses"))
    flow_ids = fields.texts("flow_ids", MAX_FLOWS, 128)
    if fields.get("flow_ids") in (None, []):
        fields.fault("flow_ids", f"must name 1 to {MAX_FLOWS} flows: if any flow counted, this one would start itself")
    for place, flow_id in enumerate(flow_ids):
        if (fault := check_identifier(join(join(fields.path, "flow_ids"), place), flow_id)) is not None:
            fields.faults.add(fault.path, fault.message)
    statuses = fields.texts("statuses", len(ENDINGS), 128)
    for place, status in enumerate(statuses):
        if status not in ENDINGS:
            at = join(join(fields.path, "statuses"), place)
            fields.faults.add(
                at, f"{shown(status)} is not a final status of a cycle; use any of {listed(list(ENDINGS))}"
            )
    made = EventSchedule(flow_ids=tuple(dict.fromkeys(flow_ids)), statuses=tuple(dict.fromkeys(statuses)))
    try:
        EventFilter(made.event_filter(_LONGEST_USER_ID))
    except FilterFault:
        fields.fault("flow_ids", "the names are too long: at most 4 KiB in all")
    return None if fields.faulty else made
