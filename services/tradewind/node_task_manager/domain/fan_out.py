"""Fan-out: a node that runs once for each item of a list, and what the node task manager itself does for it.

The node task of such a node is no worker's. When its inputs are there it is offered to be split, when all its items
have ended to be joined; an offer that nobody carries out in time is made anew.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from tradewind.node_task_manager.domain.node_task import TaskError

MOST_ITEMS = 10_000
"""Longest list that a node runs over."""
MAX_PARALLEL = 100
"""So many items stand ready or run at once unless the node says otherwise."""
INLINE_BYTES = 128
"""Of inputs that all items share, values up to this length are copied to each; larger ones stay at their source."""
ERRORS = "errors"
"""The output handle by which a mapped node tells which of its items did not complete."""
TOO_FEW, TOO_LARGE = "ITEMS_FAILED", "OUTPUT_TOO_LARGE"


@dataclass(frozen=True, slots=True)
class FanOut:
    """Runs a node for each item of the list that arrives at `handle`, at most `max_parallel` at once.

    It succeeds when `least_count` items do, or `least_ratio` of them, a decimal number such as "0.9"; when all do where
    both are None. A whole number of items is the ratio rounded up.
    """

    handle: str
    max_parallel: int = MAX_PARALLEL
    least_count: int | None = None
    least_ratio: str | None = None

    def needed(self, items: int) -> int:
        """Return how many of so many items must complete; it may be more than there are."""
        if self.least_count is not None:
            return self.least_count
        return items if self.least_ratio is None else math.ceil(Fraction(self.least_ratio) * items)


@dataclass(frozen=True, slots=True)
class FirstLoss:
    """The first item that did not complete, and why."""

    item: int
    status: str
    why: str


def loss_words(code: str, message: str, type: str) -> str:
    """Return an error in a line of at most 500 bytes or so."""
    what = f"{type}: {message}" if type else message
    return what if code == "NODE_ERROR" else f"{code}: {what}"


@dataclass(frozen=True, slots=True)
class FanOutOffer:
    """A mapped node that is to be split (`total` is 0) or joined (`total` items have ended, `losses` not completed)."""

    task_id: str
    nonce: str
    component_id: str
    plan: str
    index: int
    total: int = 0
    losses: int = 0


class StepKind(StrEnum):
    """How an offer is carried out."""

    SPLIT = "split"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class FanOutStep:
    """An offer, carried out: the items as JSON texts with how many must complete, or outputs, or why it failed."""

    task_id: str
    nonce: str
    kind: StepKind
    items: tuple[str, ...] = ()
    need: int = 0
    outputs: tuple[tuple[str, str], ...] = ()
    error: TaskError | None = None
