"""Events: what somebody published, and the firings that follow from it."""

import hashlib
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: an id given by the publisher, a name, and a JSON object or "" for none."""

    id: str
    name: str
    payload_json: str = ""


class Outcome(Enum):
    """What became of one firing that an event asked for."""

    FIRED = "fired"
    """Queued for delivery."""
    DUPLICATE = "duplicate"
    """The trigger has fired for this event before."""
    FULL = "full"
    """Too many firings of this trigger wait; this one was dropped and counted as dropped."""
    GONE = "gone"
    """The trigger does not take the event: it was removed, paused, ended or changed meanwhile."""


def firing_id(trigger_id: str, event_id: str) -> str:
    """Return the id of a trigger's firing for an event: always the same for these two, and never a trigger's id."""
    return f"{trigger_id}:{hashlib.sha1(event_id.encode(), usedforsecurity=False).hexdigest()[:20]}"


def trigger_of(firing: str) -> str:
    """Return the id of the trigger in the id of a firing; a trigger's own id is returned unchanged."""
    return firing.partition(":")[0]
