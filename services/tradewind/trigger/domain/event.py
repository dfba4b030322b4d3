"""Events: what somebody published, and the firings that follow from it."""

import hashlib
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: an id of the publisher's, a name, and a JSON object or "" for none."""

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
    """Too many firings of this trigger wait; this one was dropped, and counted."""
    GONE = "gone"
    """The trigger does not wait for it: removed, paused, ended, or changed meanwhile."""


def firing_id(trigger_id: str, event_id: str) -> str:
    """Return the id of a trigger's firing for an event: the same for the same two, and no trigger's own."""
    return f"{trigger_id}:{hashlib.sha1(event_id.encode(), usedforsecurity=False).hexdigest()[:20]}"


def trigger_of(firing: str) -> str:
    """Return the id of the trigger in the id of a firing; that of a trigger itself is returned as it is."""
    return firing.partition(":")[0]
