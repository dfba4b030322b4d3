"""Fan-out: a node that runs once for each item of a list, and what the node task manager itself does for it.

The node task of such a node goes to no worker. Once its inputs are there, an offer is made to split it; once all its
items have ended, an offer to join it. An offer that nobody carries out in time is made anew.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from tradewind.node_task_manager.domain.node_task import TaskError

MAX_ITEMS = 10_000
"""Longest list that a node runs over."""
MAX_PARALLEL = 100
"""How many items are ready or running at once, unless the node says otherwise."""
INLINE_BYTES = 128
"""Inputs that all items share are copied to each item up to this length; larger values stay at their source."""
ERRORS = "errors"
"""The output handle by which a mapped node reports the items that did not complete."""
TOO_FEW, TOO_LARGE = "ITEMS_FAILED", "OUTPUT_TOO_LARGE"


@dataclass(frozen=True, slots=True)
class FanOut:
    """Runs a node for each item of the list that arrives at `handle`, at most `max_parallel` at once.

    It succeeds when `least_count` items do, or the share `least_ratio` of them: a decimal number such as "0.9", rounded
    up to whole items. When both are None, all items must succeed.
    """

    handle: str
    max_parallel: int = MAX_PARALLEL
    least_count: int | None = None
    least_ratio: str | None = None

    def needed(self, items: int) -> int:
        """Return how many of `items` items must complete; this may exceed `items`."""
        if self.least_count is not None:
            return self.least_count
        return items if self.least_ratio is None else math.ceil(Fraction(self.least_ratio) * items)


@dataclass(frozen=True, slots=True)
class FanOutOffer:
    """A mapped node to split (`total` is 0) or to join (`total` items have ended, `losses` of them not completed)."""

    task_id: str
    nonce: str
    run_id: str
    component_id: str
    plan: str
    index: int
    total: int = 0
    losses: int = 0

    def renews(self, earlier: "FanOutOffer") -> bool:
        """Say whether it is the same offer made anew: what carried out the earlier one carries out this one."""
        return replace(earlier, nonce=self.nonce) == self


class StepKind(StrEnum):
    """How an offer is carried out."""

    SPLIT = "split"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class FanOutStep:
    """An offer, carried out: the items (JSON texts) and how many must complete, or the outputs, or the error."""

    task_id: str
    nonce: str
    kind: StepKind
    items: tuple[str, ...] = ()
    need: int = 0
    outputs: tuple[tuple[str, str], ...] = ()
    error: TaskError | None = None
