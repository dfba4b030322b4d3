"""The plans at hand take a bounded amount of memory."""

from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.use_cases.plans import PlanCache


def plan(digest: str, config_bytes: int) -> Plan:
    """Build a plan of one node."""
    return Plan(digest, (PlanNode("a", "noop", "x" * config_bytes),), ())


def test_large_configs_push_out_the_plans_used_longest_ago() -> None:
    cache = PlanCache(size=10_000)
    for digest in ("p1", "p2", "p3"):
        cache.put(plan(digest, 2_000))
    assert cache.get("p1") is not None
    cache.put(plan("p4", 2_000))
    assert [digest for digest in ("p1", "p2", "p3", "p4") if cache.get(digest)] == ["p1", "p3", "p4"]


def test_a_plan_larger_than_all_room_is_kept_alone() -> None:
    cache = PlanCache(size=1_000)
    cache.put(plan("p1", 10))
    cache.put(plan("p2", 5_000))
    cache.put(plan("p2", 5_000))
    assert (cache.get("p1"), cache.get("p2") is not None) == (None, True)
