"""The configuration that operators change."""

from typing import Protocol

from tradewind.node_task_manager.domain.system_config import SystemConfig


class ConfigStore(Protocol):
    """Keeps the system's configuration."""

    async def load(self) -> SystemConfig:
        """Return the configuration, the default when none was ever written."""
        ...

    async def save(self, config: SystemConfig, expected: int) -> bool:
        """Replace the configuration of version `expected`; False, with nothing changed, when the version is another."""
        ...
