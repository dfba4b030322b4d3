"""Plans of components."""

from typing import Protocol

from tradewind.node_task_manager.domain.plan import Plan

PART = 500
"""How many nodes a part of a plan without edges has at most."""


class PlanStore(Protocol):
    """Keeps plans by digest; equal digests are equal plans."""

    async def save(self, plan: Plan, keep_ms: int | None = None) -> None:
        """Keep a plan while it is used and for `keep_ms` (30 d by default); saving it again is a no-op."""
        ...

    async def load(self, digest: str, place: int | None = None) -> Plan | None:
        """Return a plan, or None when it is unknown.

        With a `place`, return only the part around it of a plan without edges that has more than PART nodes; parts
        begin at multiples of PART.
        """
        ...
