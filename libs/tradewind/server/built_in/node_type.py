"""The definition of a built-in node type."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Fault = tuple[tuple[str | int, ...], str]
"""Keys that lead to the place within a config (none for the config as a whole), and what is wrong there."""

LONGEST_S = 3650 * 86_400
"""Ten years."""

TIME_PROPERTIES = {
    "seconds": {"type": "number", "minimum": 0, "description": "Seconds to wait, from when the node is ready."},
    "until": {"type": "string", "format": "date-time", "description": "Time to wait until, with its zone."},
}
"""The JSON Schema of the keys that `time_faults` and `times_of` read."""


@dataclass(frozen=True, slots=True)
class Handle:
    """An input handle."""

    name: str
    gather: bool = False


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A node type: handles, the JSON Schema of its config as text, and `faults`, which finds all faults of a config.

    With `any_input` it accepts any input handle, with any number of edges into each; with `retries` it may be retried.
    """

    name: str
    description: str
    inputs: tuple[Handle, ...]
    outputs: tuple[str, ...]
    config_schema: str
    faults: Callable[[Mapping[str, Any]], list[Fault]]
    any_input: bool = False
    retries: bool = False


def raise_first(faults: Sequence[Fault]) -> None:
    """Raise ValueError with the first of the faults, if any, after its place."""
    if faults:
        keys, message = faults[0]
        raise ValueError(": ".join(filter(None, (".".join(map(str, keys)), message))))


def time_faults(config: Mapping[str, Any], *, required: bool) -> list[Fault]:
    """Return what is wrong with `seconds` and `until`, of which at most one may be given."""
    found: list[Fault] = []
    seconds, until = config.get("seconds"), config.get("until")
    if seconds is not None and until is not None:
        found.append(((), "has both seconds and until; give only one"))
    if required and seconds is None and until is None:
        found.append(((), "needs seconds (a number) or until (a time such as 2026-03-01T09:00:00Z)"))
    if seconds is not None:
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not number or not 0 <= seconds <= LONGEST_S:
            found.append((("seconds",), f"must be a number from 0 to {LONGEST_S} (ten years), is {seconds!r}"))
    if until is not None and _parsed(until) is None:
        found.append((("until",), f"must be a time with its zone, such as 2026-03-01T09:00:00Z, is {until!r}"))
    return found


def unknown_faults(given: Mapping[str, Any], known: tuple[str, ...]) -> list[Fault]:
    """Return a fault for each key that is not known."""
    return [((key,), f"unknown key; known keys are {', '.join(known)}") for key in given if key not in known]


def times_of(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the end (epoch ms, 0 for never) and the duration in ms (-1 for not given) from a config without faults."""
    until = _parsed(config.get("until"))
    seconds = config.get("seconds")
    return (
        0 if until is None else max(1, round(until.timestamp() * 1000)),
        -1 if seconds is None else round(seconds * 1000),
    )


def _parsed(value: object) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(value) if isinstance(value, str) else None
        return parsed if parsed is not None and parsed.tzinfo is not None and parsed.timestamp() >= 0 else None
    except (ValueError, OverflowError):
        return None
