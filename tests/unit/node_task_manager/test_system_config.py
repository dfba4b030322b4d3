"""The system's configuration: its shares, and following it."""

import pytest

from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.stores.memory.all_stores import MemoryConfigStore
from tradewind.node_task_manager.use_cases.system_config import FollowConfig
from tradewind.server.rates import Rate


def test_limits_that_span_users_are_split_over_the_shards_without_a_rest() -> None:
    whole = SystemConfig(
        max_running=10,
        max_running_per_user=7,
        max_running_per_node_type={"model": 5},
        rates={"model": Rate.parse("7/m")},
        user_weights={"ann": 2.0},
    )
    shares = [whole.share(shard, 4) for shard in range(4)]
    assert [each.max_running for each in shares] == [3, 3, 2, 2]
    assert [each.max_running_per_node_type["model"] for each in shares] == [2, 1, 1, 1]
    assert [str(each.rates["model"]) for each in shares] == ["2/m", "2/m", "2/m", "1/m"]
    assert {(each.max_running_per_user, each.weight("ann"), each.weight("bob")) for each in shares} == {(7, 2.0, 1.0)}


@pytest.mark.parametrize(
    "limited",
    [
        SystemConfig(max_running=1),
        SystemConfig(max_running_per_user=1),
        SystemConfig(max_running_per_flow=1),
        SystemConfig(max_concurrent_tasks=1),
        SystemConfig(max_running_per_node_type={"model": 1}),
        SystemConfig(rates={"model": Rate.parse("1/s")}),
    ],
)
def test_any_limit_bounds_what_runs(limited: SystemConfig) -> None:
    assert limited.bounded
    assert not SystemConfig(user_weights={"ann": 2.0}).bounded


async def test_configuration_is_followed_when_the_store_gives_out_a_version_again() -> None:
    store = MemoryConfigStore()
    follow = FollowConfig(store, {}, lambda version: None)
    await store.save(SystemConfig(max_running=2, version=1), 0)
    await follow.load()
    await store.save(SystemConfig(max_running=5, version=1), 1)
    await follow.load()
    assert follow.config.max_running == 5
