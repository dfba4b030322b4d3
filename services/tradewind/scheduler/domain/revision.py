"""Revisions of a flow: its definition as it stood from one change to the next."""

from dataclasses import dataclass

KEPT_REVISIONS = 100
"""How many of the newest revisions stay on record, the current one included; others stay while open runs use them."""


@dataclass(frozen=True, slots=True)
class Revision:
    """Who made a revision, when (ms since the epoch) and why; `digest` covers its definition and its labels.

    `open_runs` is the number of runs that use the revision and have not ended.
    """

    number: int
    at_ms: int
    by: str
    note: str
    digest: str
    labels: tuple[tuple[str, str], ...]
    open_runs: int = 0
