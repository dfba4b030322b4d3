"""Logs triggers that will not fire again although nobody wanted that."""

from collections.abc import Iterable

import structlog

from tradewind.trigger.metrics import DEAD
from tradewind.trigger.ports.claims import DeadLetter

_log = structlog.get_logger(__name__)


def log_dead(dead: Iterable[DeadLetter]) -> None:
    """Log and count triggers that have just died."""
    for letter in dead:
        DEAD.inc()
        _log.error(
            "trigger_dead",
            trigger_id=letter.trigger_id,
            failures=letter.failures,
            error=letter.error,
            hint="fix the cause, then redrive it (RedriveTrigger), or save it again with a higher epoch",
        )


def log_orphans(orphans: Iterable[str]) -> None:
    """Log the ids of index entries without a trigger, which were removed."""
    for trigger_id in orphans:
        _log.error("trigger_without_record", trigger_id=trigger_id, hint="the store has lost its record; save it again")
