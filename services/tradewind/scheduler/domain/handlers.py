"""Components that handle the outcome of a cycle: those that run on its failure, and those that run last."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tradewind.scheduler.domain.cycle_status import CycleStatus

BAD = frozenset({CycleStatus.FAILED, CycleStatus.PARTIAL, CycleStatus.TIMEOUT})
"""Outcomes on which `on_failure` runs; somebody who cancelled a cycle knows."""
HANDLERS_MS = 600_000
"""How long handlers may go on once their cycle was asked to stop, or has timed out."""
SKIPPED_WELL = "the cycle did not fail"
MOST_FAILED = 100


class Phase(StrEnum):
    """Where a cycle with handlers is."""

    MAIN = "main"
    ON_FAILURE = "on_failure"
    FINALLY = "finally"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Handlers:
    """Ids of the components that run on failure, and of those that run last."""

    on_failure: tuple[str, ...] = ()
    last: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Both."""
        return (*self.on_failure, *self.last)

    def phase(self, ended: Collection[str], count: int) -> Phase:
        """Return where a cycle of `count` components is of which these have ended.

        Components that run on failure may end, as skipped, while those that run last do.
        """
        handlers = self.all
        if sum(each not in handlers for each in ended) < count - len(handlers):
            return Phase.MAIN
        if len(ended) >= count:
            return Phase.OVER
        return Phase.ON_FAILURE if any(each not in ended for each in self.on_failure) else Phase.FINALLY

    def due(self, ended: Collection[str], count: int, outcome: CycleStatus) -> Mapping[str, str]:
        """Return the components to be released now, whatever was before: why it is skipped, or "", for each."""
        if self.phase(ended, count) is Phase.MAIN:
            return {}
        skip = "" if outcome in BAD else SKIPPED_WELL
        due = {each: skip for each in self.on_failure if each not in ended}
        if skip or not due:
            due |= {each: "" for each in self.last if each not in ended}
        return due


def outcome_value(
    status: CycleStatus, reason: str, failed_nodes: list[dict[str, Any]], failed_count: int
) -> dict[str, Any]:
    """Return what handlers are told of the outcome so far, the parameter `outcome` of their entry nodes."""
    return {"status": status.value, "reason": reason, "failed_nodes": failed_nodes, "failed_count": failed_count}
