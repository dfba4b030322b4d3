"""All services over stores in memory, for tests: they listen on no port, and nothing outlives the process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.node_task_manager.app import NodeTaskManager
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.node_task_manager.stores.memory.all_stores import MemoryStores as NodeTaskManagerStores
from tradewind.registry.app import Registry, lifetimes_of
from tradewind.registry.settings import RegistrySettings
from tradewind.registry.stores.memory import MemoryRegistry
from tradewind.scheduler.app import Scheduler
from tradewind.scheduler.domain.event_schedule import FLOW_FINISHED
from tradewind.scheduler.ports.changes import RunChange
from tradewind.scheduler.settings import SchedulerSettings
from tradewind.scheduler.stores.memory import MemoryStores as SchedulerStores
from tradewind.server.bootstrap import Service
from tradewind.server.channels import OpenChannel
from tradewind.server.clock import SystemClock
from tradewind.server.partitions import PARTITIONS
from tradewind.server.settings import AnySettings
from tradewind.trigger.app import TriggerService
from tradewind.trigger.ports.stores import Stores as TriggerStores
from tradewind.trigger.settings import TriggerSettings
from tradewind.trigger.stores.memory import MemoryTriggerStore
from tradewind.trigger.stores.memory_queues import MemoryQueueStore


@dataclass(frozen=True, slots=True)
class CycleChange:
    """News that a run of a cycle has begun or has changed its status."""

    flow_id: str
    cycle: int
    run: int
    status: str
    reason: str
    planned_ms: int
    """Milliseconds since the epoch; 0 when it was not planned."""


class InMemory:
    """All services; each reaches its peers through `open_channel`. `settings` holds those of any service, by name.

    `clock` gives the stores the time in epoch ms.
    """

    def __init__(self, open_channel: OpenChannel, clock: Callable[[], int] | None = None, **settings: Any) -> None:
        clock = clock or SystemClock()
        registry_settings = _settings_for(RegistrySettings, settings)
        trigger_settings = _settings_for(TriggerSettings, settings)
        node_task_manager_settings = _settings_for(NodeTaskManagerSettings, settings)
        scheduler_settings = _settings_for(SchedulerSettings, settings | {"scheduler_single_replica": True})
        self.triggers = MemoryTriggerStore(clock, trigger_settings.policy())
        """The store of the trigger service."""
        self._node_tasks = NodeTaskManagerStores(node_task_manager_settings.limits(), clock)
        self._flows = SchedulerStores(
            clock,
            lease_ms=round(scheduler_settings.scheduler_lease_seconds * 1000),
            publishes_ends=lambda: bool(self.triggers.listening(FLOW_FINISHED)),
            settle_ms=round(scheduler_settings.scheduler_settle_seconds * 1000),
        )
        self.services: Sequence[Service] = [
            Registry(registry_settings, stores=MemoryRegistry(clock, lifetimes_of(registry_settings))),
            TriggerService(
                trigger_settings,
                stores=TriggerStores(self.triggers.of_queue, MemoryQueueStore(self.triggers), self.triggers),
            ),
            NodeTaskManager(node_task_manager_settings, stores=self._node_tasks, open_channel=open_channel),
            Scheduler(scheduler_settings, stores=self._flows, open_channel=open_channel),
        ]
        """All services, in the order in which they start."""

    async def follow_cycles(self, on_change: Callable[[CycleChange], None]) -> None:
        """From now on, call `on_change` whenever a run has begun or has changed its status."""
        statuses: dict[str, str] = {}

        def handle_changes(changes: Sequence[RunChange]) -> None:
            for state in (change.state_after(None) for change in changes):
                if state is not None and statuses.get(str(state.name)) != state.status:
                    statuses[str(state.name)] = state.status
                    name, planned_ms = state.name, state.facts.planned_ms
                    on_change(
                        CycleChange(name.flow_id, name.cycle, name.run, state.status.value, state.reason, planned_ms)
                    )

        for partition in range(PARTITIONS):
            await self._flows.changes.subscribe(partition, handle_changes, lambda: None)

    def next_deadline_ns(self) -> int | None:
        """Return when there is next something to do, in nanoseconds since the epoch: 0 for now, None for never."""
        next_times_ms = [store.next_ms() for store in (self._node_tasks, self._flows, self.triggers)]
        return min((next_ms * 1_000_000 for next_ms in next_times_ms if next_ms is not None), default=None)


def _settings_for(settings: type[AnySettings], values: Mapping[str, Any]) -> AnySettings:
    """Return settings with those values of `values` that are theirs."""
    return settings(**{name: value for name, value in values.items() if name in settings.model_fields})
