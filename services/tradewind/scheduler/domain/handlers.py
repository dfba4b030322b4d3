"""Components that handle the outcome of a cycle: those that run on its failure, and those that run last."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tradewind.scheduler.domain.cycle_status import CycleStatus

FAILURES = frozenset({CycleStatus.FAILED, CycleStatus.PARTIAL, CycleStatus.TIMEOUT})
"""Outcomes on which `on_failure` runs; not `cancelled`, because whoever cancels a cycle knows about it."""
HANDLERS_MS = 600_000
"""How long handlers may go on once their cycle has been asked to stop, or its timeout has passed."""
NOT_FAILED = "the cycle did not fail"
MAX_FAILED = 100


class Phase(StrEnum):
    """The phase that a cycle with handlers is in."""

    MAIN = "main"
    ON_FAILURE = "on_failure"
    FINALLY = "finally"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Handlers:
    """The ids of the components that run on failure, and of those that run last."""

    on_failure: tuple[str, ...] = ()
    last: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """The ids of both kinds."""
        return (*self.on_failure, *self.last)

    def phase(self, ended: Collection[str], count: int) -> Phase:
        """Return the phase of a cycle of `count` components of which those in `ended` have ended.

        Components that run on failure may end, as skipped, while those that run last are running.
        """
        handlers = frozenset(self.all)
        if sum(each not in handlers for each in ended) < count - len(handlers):
            return Phase.MAIN
        if len(ended) >= count:
            return Phase.OVER
        return Phase.ON_FAILURE if any(each not in ended for each in self.on_failure) else Phase.FINALLY

    def due(
        self, ended: Collection[str], withheld: Collection[str], count: int, outcome: CycleStatus
    ) -> Mapping[str, str]:
        """Return which of the withheld components to release now, each with why it is skipped, "" if it runs.

        Components that neither have ended nor are withheld were released before, and are running: the outcome may have
        been another one then, since the cycle may have been stopped meanwhile.
        """
        if self.phase(ended, count) is Phase.MAIN:
            return {}
        skip = "" if outcome in FAILURES else NOT_FAILED
        due = {each: skip for each in self.on_failure if each in withheld}
        running = any(each not in ended and each not in withheld for each in self.on_failure)
        if not running and (skip or not due):
            due |= {each: "" for each in self.last if each in withheld}
        return due


def outcome_value(
    status: CycleStatus, reason: str, failed_nodes: list[dict[str, Any]], failed_count: int
) -> dict[str, Any]:
    """Return the outcome so far as handlers receive it, in the parameter `outcome` of their entry nodes."""
    return {"status": status.value, "reason": reason, "failed_nodes": failed_nodes, "failed_count": failed_count}
