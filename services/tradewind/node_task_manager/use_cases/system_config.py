"""Reading, changing and following the system's configuration."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.config import ConfigStore
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.server.faults import Aborted, InvalidInput, Violation

_TRIES = 10


class FollowConfig:
    """Keeps the stores of this process within the present configuration.

    `publish_version(version)` notifies the other replicas of a change.
    """

    def __init__(
        self, store: ConfigStore, dispatchers: Mapping[int, Dispatcher], publish_version: Callable[[int], None]
    ) -> None:
        self._store = store
        self._dispatchers = dispatchers
        self._publish_version = publish_version
        self._lock = asyncio.Lock()
        self.config = SystemConfig()

    def share(self, shard: int) -> SystemConfig:
        """Return the configuration of one of the shards."""
        return self.config.share(shard, len(self._dispatchers))

    async def caches(self, wanted: str) -> Collection[str]:
        """Return the names of all caches; the store is asked again when `wanted` is not among them."""
        if wanted and wanted not in self.config.all_caches:
            await self.load()
        return self.config.all_caches.keys()

    async def load(self) -> None:
        """Put the stored configuration in force, unless it already is, and look again at what limits held back."""
        async with self._lock:
            config = await self._store.load()
            # Not by their versions: a store that has lost its last second gives out versions again.
            if config != self.config:
                await self._enforce(config)

    async def update(self, given: SystemConfig, fields: Iterable[str], expected: int | None) -> SystemConfig:
        """Copy `fields` of a configuration into the stored one, and return the result.

        Raises InvalidInput when a limit cannot be split over the shards, and Aborted when the stored version is not
        `expected` and the result would differ from it; None expects no particular version.
        """
        values = {name: getattr(given, name) for name in fields}
        self._check(SystemConfig(**values))
        for _ in range(_TRIES):
            stored = await self._store.load()
            if expected is not None and stored.version != expected:
                if replace(stored, **values) == stored:
                    # As after a repeated request, of which an earlier attempt has been carried out.
                    return stored
                break
            changed = replace(stored, **values, version=stored.version + 1)
            if await self._store.save(changed, stored.version):
                self._publish_version(changed.version)
                await self.load()
                return changed
        raise Aborted("VERSION_CONFLICT", "the configuration has changed in the meantime; read it again and retry")

    async def _enforce(self, config: SystemConfig) -> None:
        for shard, dispatcher in self._dispatchers.items():
            dispatcher.configure(config.share(shard, len(self._dispatchers)))
        for dispatcher in self._dispatchers.values():
            dispatcher.apply(await dispatcher.shard.tasks.reopen())
            dispatcher.request_claim()
        self.config = config

    def _check(self, given: SystemConfig) -> None:
        shards = len(self._dispatchers)
        limits = {"max_running": given.max_running} | {
            f"max_running_per_node_type[{name}]": most for name, most in given.max_running_per_node_type.items()
        }
        limits |= {f"rates[{name}]": rate.count for name, rate in given.rates.items()}
        faults = [
            Violation(f"config.{path}", f"must be at least {shards}, the number of shards, is {most}")
            for path, most in limits.items()
            if 0 < most < shards
        ]
        if faults:
            raise InvalidInput(faults)
