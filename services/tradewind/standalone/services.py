"""Builds the services of the stack, each with its own login to the store."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tradewind.access.app import Access
from tradewind.access.settings import AccessSettings
from tradewind.access.stores.keys import ACL as ACCESS
from tradewind.node_task_manager.app import NodeTaskManager
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.node_task_manager.stores.keys import ACL as NODE_TASK_MANAGER
from tradewind.registry.app import Registry
from tradewind.registry.settings import RegistrySettings
from tradewind.registry.stores.keys import ACL as REGISTRY
from tradewind.scheduler.app import Scheduler
from tradewind.scheduler.settings import SchedulerSettings
from tradewind.scheduler.stores.keys import ACL as SCHEDULER
from tradewind.server.access.gate import Gate
from tradewind.server.access.gate_settings import gate_of, require_open
from tradewind.server.bootstrap import Service
from tradewind.server.redis.watch import METRICS
from tradewind.server.settings import load_settings, variable_of
from tradewind.trigger.app import TriggerService
from tradewind.trigger.settings import TriggerSettings
from tradewind.trigger.stores.keys import ACL as TRIGGER

ACL_USERS = (REGISTRY, TRIGGER, NODE_TASK_MANAGER, SCHEDULER, ACCESS, METRICS)
"""The store users of the services, and the one that measures the store."""


@dataclass(frozen=True, slots=True)
class Login:
    """How a service logs in to the store; without a user, the URL or the environment decides."""

    store_url: str
    user: str | None = None
    password: str | None = None

    def settings(self) -> dict[str, object]:
        """Return the login as settings."""
        if self.user is None:
            return {"store_url": self.store_url}
        # The users of an embedded store may only touch keys with the default prefix.
        return {
            "store_url": self.store_url,
            "store_user": self.user,
            "store_password": self.password,
            "key_prefix": "trading_flow",
        }


@dataclass(frozen=True, slots=True)
class Stack:
    """All services, in the order in which they start; `gate` and `access` are None when calls need no token."""

    services: Sequence[Service]
    scheduler: Scheduler
    gate: Gate | None = None
    access: Access | None = None


def build_services(
    login: Callable[[str], Login], address: str, shards: int, *, single_replica: bool, service_token: str | None
) -> Stack:
    """Return all services; each finds its peers at `address`.

    `login` returns the login for the name of a store user; `single_replica` says that no other stack works on the
    store. With a `service_token`, which the services show each other, calls need a token. Raises SettingsError when the
    environment holds wrong settings, ValueError for an invalid store URL.
    """
    secret = {} if service_token is None else {"service_token": service_token}
    registry_settings = load_settings(RegistrySettings, **login(REGISTRY.name).settings())
    trigger_settings = load_settings(TriggerSettings, **login(TRIGGER.name).settings())
    node_task_manager_settings = load_settings(
        NodeTaskManagerSettings,
        **login(NODE_TASK_MANAGER.name).settings(),
        **secret,
        registry_address=address,
        node_task_manager_shards=shards,
    )
    scheduler_settings = load_settings(
        SchedulerSettings,
        **login(SCHEDULER.name).settings(),
        **secret,
        registry_address=address,
        trigger_address=address,
        node_task_manager_address=address,
        scheduler_single_replica=single_replica,
    )
    scheduler = Scheduler(scheduler_settings)
    services: list[Service] = [
        Registry(registry_settings),
        TriggerService(trigger_settings),
        NodeTaskManager(node_task_manager_settings),
        scheduler,
    ]
    if service_token is None:
        if registry_settings.access_address:
            raise ValueError(
                f"{variable_of('access_address')} is for servers that run on their own; a whole stack has its own "
                f"access service, which {variable_of('auth')} turns on"
            )
        require_open(registry_settings)
        return Stack(services, scheduler)
    access_settings = load_settings(AccessSettings, **login(ACCESS.name).settings(), **secret)
    access = Access(access_settings)
    services.insert(0, access)
    return Stack(services, scheduler, gate_of(access_settings, services), access)
