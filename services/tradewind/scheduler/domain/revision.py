"""Revisions of a flow: its definition as it stood from one change to the next."""

from dataclasses import dataclass

KEPT_REVISIONS = 100
"""So many of the newest stay on record, the current one among them; others while open runs go by them."""


@dataclass(frozen=True, slots=True)
class Revision:
    """Who made a revision when (ms since the epoch) and why; `digest` covers its definition and its labels.

    `open_runs` is how many runs that have not ended go by it.
    """

    number: int
    at_ms: int
    by: str
    note: str
    digest: str
    labels: tuple[tuple[str, str], ...]
    open_runs: int = 0
