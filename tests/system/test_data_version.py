"""Every service refuses data written by a later release, with a message that says what to do."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.servers import RedisServer
from tradewind.access.app import Access
from tradewind.access.settings import AccessSettings
from tradewind.access.stores.keys import Keys as AccessKeys
from tradewind.node_task_manager.app import NodeTaskManager
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.node_task_manager.stores.keys import Keys as NodeTaskManagerKeys
from tradewind.registry.app import Registry
from tradewind.registry.settings import RegistrySettings
from tradewind.registry.stores.keys import Keys as RegistryKeys
from tradewind.scheduler.app import Scheduler
from tradewind.scheduler.settings import SchedulerSettings
from tradewind.scheduler.stores.keys import Keys as SchedulerKeys
from tradewind.server.bootstrap import Server, Service, StartError
from tradewind.server.settings import CommonSettings
from tradewind.trigger.app import TriggerService
from tradewind.trigger.settings import TriggerSettings
from tradewind.trigger.stores.keys import Keys as TriggerKeys

PREFIX = "trading_flow"
SERVICES: dict[str, tuple[type[CommonSettings], Callable[[Any], Service], str]] = {
    "access": (AccessSettings, Access, AccessKeys(PREFIX).data_version()),
    "registry": (RegistrySettings, Registry, RegistryKeys(PREFIX).data_version),
    "trigger": (TriggerSettings, TriggerService, TriggerKeys(PREFIX).data_version()),
    "node_task_manager": (NodeTaskManagerSettings, NodeTaskManager, NodeTaskManagerKeys(PREFIX, 0).data_version()),
    "scheduler": (SchedulerSettings, Scheduler, SchedulerKeys(PREFIX).data_version()),
}


@pytest.mark.parametrize("name", SERVICES)
async def test_service_stores_data_version_and_refuses_later_one(embedded: RedisServer, name: str) -> None:
    settings_type, build, key = SERVICES[name]
    settings = settings_type(store_url=embedded.url(name), service_token="a-token-of-the-services")
    await embedded.flush()
    server = Server([build(settings)], drain_s=0)
    await server.start()
    await server.stop()
    admin = embedded.connect()
    try:
        noted = json.loads(await admin.get(key) or b"{}")
        version = noted["version"]
        await admin.set(key, json.dumps({**noted, "version": version + 1}))
        later = Server([build(settings)], drain_s=0)
        with pytest.raises(StartError, match=f"written by a later release; this one reads versions up to {version}"):
            await later.start()
    finally:
        await embedded.close_clients()


async def test_shard_count_is_fixed_once_there_is_data(embedded: RedisServer) -> None:
    await embedded.flush()
    url = embedded.url("node_task_manager")
    first = Server([NodeTaskManager(NodeTaskManagerSettings(store_url=url, node_task_manager_shards=2))], drain_s=0)
    await first.start()
    await first.stop()
    other = Server([NodeTaskManager(NodeTaskManagerSettings(store_url=url))], drain_s=0)
    with pytest.raises(
        StartError, match="have 2 shards, but this server is set to 1 by TRADEWIND_NODE_TASK_MANAGER_SHARDS"
    ):
        await other.start()
