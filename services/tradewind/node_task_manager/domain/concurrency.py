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


def limit_text(limit: str) -> str:
    """Say which limit is full, given its name (see stores/lua/slots.lua); `running` is the limit on all node tasks."""
    kind, _, rest = limit.partition(":")
    match kind:
        case "user":
            return f'the limit on running node tasks of user "{rest}" is reached'
        case "type":
            return f'the limit on running node tasks of type "{rest}" is reached'
        case "flow":
            return f'the limit on running node tasks of flow "{rest}" is reached'
        case "rate":
            return f'the rate limit of node type "{rest}" is reached'
        case "pace":
            return f'the rate limit of key "{rest.partition(":")[2]}" is reached'
        case "adhoc":
            return f'the limit on running ad-hoc tasks of user "{rest}" is reached'
        case "key":
            return f'the limit on running node tasks with key "{rest.partition(":")[2]}" is reached'
        case _:
            return "the limit on all running node tasks is reached"
