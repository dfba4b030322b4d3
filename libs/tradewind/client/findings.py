"""Broken invariants that the services' doctors find."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """An invariant that does not hold: which service found it by which check, what it is about, what is wrong, and
    whether it was put right."""

    service: str
    check: str
    subject: str
    problem: str
    mended: bool


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the doctors of all services found, among how many records; `found_before` counts what they found in the
    background since they started, by check."""

    findings: tuple[Finding, ...]
    examined: int
    found_before: Mapping[str, int]

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong any more."""
        return all(finding.mended for finding in self.findings)
