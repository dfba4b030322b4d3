"""The services of the stack, each with a login of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tradewind.node_task_manager.app import NodeTaskManager
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.node_task_manager.stores.keys import ACL as NODE_TASK_MANAGER
from tradewind.registry.app import Registry
from tradewind.registry.settings import RegistrySettings
from tradewind.registry.stores.keys import ACL as REGISTRY
from tradewind.scheduler.app import Scheduler
from tradewind.scheduler.settings import SchedulerSettings
from tradewind.scheduler.stores.keys import ACL as SCHEDULER
from tradewind.server.bootstrap import Service
from tradewind.server.redis.watch import METRICS
from tradewind.server.settings import load_settings
from tradewind.trigger.app import TriggerService
from tradewind.trigger.settings import TriggerSettings
from tradewind.trigger.stores.keys import ACL as TRIGGER

ACL_USERS = (REGISTRY, TRIGGER, NODE_TASK_MANAGER, SCHEDULER, METRICS)
"""The store users of the services, and of who measures the store."""


@dataclass(frozen=True, slots=True)
class Login:
    """How a service reaches the store; without a user, as the URL or the environment says."""

    store_url: str
    user: str | None = None
    password: str | None = None

    def settings(self) -> dict[str, object]:
        """Return it as settings."""
        if self.user is None:
            return {"store_url": self.store_url}
        # The users of an embedded store may touch the keys of the default prefix only.
        return {
            "store_url": self.store_url,
            "store_user": self.user,
            "store_password": self.password,
            "key_prefix": "trading_flow",
        }


def build_services(login: Callable[[str], Login], address: str, shards: int, *, sole: bool) -> Sequence[Service]:
    """Return all services, in the order in which they start; each finds its peers at `address`.

    `login` gives the login for the name of a store user; with `sole`, no other stack works on the store. Raises
    SettingsError when the environment holds wrong settings, ValueError for a store URL that is none.
    """
    registry = load_settings(RegistrySettings, **login(REGISTRY.name).settings())
    trigger = load_settings(TriggerSettings, **login(TRIGGER.name).settings())
    node_task_manager = load_settings(
        NodeTaskManagerSettings,
        **login(NODE_TASK_MANAGER.name).settings(),
        registry_address=address,
        node_task_manager_shards=shards,
    )
    scheduler = load_settings(
        SchedulerSettings,
        **login(SCHEDULER.name).settings(),
        registry_address=address,
        trigger_address=address,
        node_task_manager_address=address,
        scheduler_sole=sole,
    )
    return [Registry(registry), TriggerService(trigger), NodeTaskManager(node_task_manager), Scheduler(scheduler)]
