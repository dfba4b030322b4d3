"""Limits on how many node tasks run at once, by name, and what happens when one is full."""

from dataclasses import dataclass
from enum import StrEnum


class WhenFull(StrEnum):
    """What happens to a node task whose key is at its limit."""

    WAIT = "wait"
    DROP_NEW = "drop_new"
    CANCEL_OLDEST = "cancel_oldest"
    KEEP_NEWEST = "keep_newest"


@dataclass(frozen=True, slots=True)
class Concurrency:
    """At most `most` node tasks of a user run at once under `key`, whatever their flow and type."""

    key: str
    most: int
    when_full: WhenFull = WhenFull.WAIT


def in_words(limit: str) -> str:
    """Say which limit is full, given its name (see stores/lua/slots.lua); `running` is the limit on all node tasks."""
    kind, _, rest = limit.partition(":")
    match kind:
        case "user":
            return f'as many node tasks of user "{rest}" run as may'
        case "type":
            return f'as many node tasks of type "{rest}" run as may'
        case "flow":
            return f'as many node tasks of flow "{rest}" run as may'
        case "rate":
            return f'as many node tasks of type "{rest}" have begun as may for now'
        case "pace":
            return f'as many node tasks with key "{rest.partition(":")[2]}" have begun as may for now'
        case "adhoc":
            return f'as many ad-hoc tasks of user "{rest}" run as may'
        case "key":
            return f'as many node tasks with key "{rest.partition(":")[2]}" run as may'
        case _:
            return "as many node tasks run as may"
