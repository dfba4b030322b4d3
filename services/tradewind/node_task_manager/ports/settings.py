"""Plans, and the configuration that operators change."""

from typing import Protocol

from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.domain.system_config import SystemConfig


class ConfigStore(Protocol):
    """Keeps the system's configuration."""

    async def load(self) -> SystemConfig:
        """Return the configuration, its default when none was ever written."""
        ...

    async def save(self, config: SystemConfig, expected: int) -> bool:
        """Replace the one of version `expected`; False, and nothing is changed, when another one stands."""
        ...


class PlanStore(Protocol):
    """Keeps plans by digest; equal digests are equal plans."""

    async def save(self, plan: Plan, keep_ms: int | None = None) -> None:
        """Keep a plan while it is used and, unless `keep_ms` says else, for 30 d; saving it again is a no-op."""
        ...

    async def load(self, digest: str) -> Plan | None:
        """Return a plan, or None when it is unknown."""
        ...
