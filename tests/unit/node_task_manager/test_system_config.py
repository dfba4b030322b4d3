"""Following the system's configuration."""

from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.stores.memory.all_stores import MemoryConfigStore
from tradewind.node_task_manager.use_cases.system_config import FollowConfig


async def test_configuration_is_followed_when_the_store_gives_out_a_version_again() -> None:
    store = MemoryConfigStore()
    follow = FollowConfig(store, {}, lambda version: None)
    await store.save(SystemConfig(max_running=2, version=1), 0)
    await follow.load()
    await store.save(SystemConfig(max_running=5, version=1), 1)
    await follow.load()
    assert follow.config.max_running == 5
