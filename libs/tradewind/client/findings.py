"""Broken invariants that the services' doctors find."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken invariant: the service and the check that found it, its subject, what is wrong, and whether it was
    mended."""

    service: str
    check: str
    subject: str
    problem: str
    mended: bool


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the doctors of all services found, and how many records they examined; `found_before` counts by check what
    they found in the background since they started."""

    findings: tuple[Finding, ...]
    examined: int
    found_before: Mapping[str, int]

    @property
    def healthy(self) -> bool:
        """Whether everything that was found is mended."""
        return all(finding.mended for finding in self.findings)
