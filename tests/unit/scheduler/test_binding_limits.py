"""Which workers could run a flow, and what would limit it."""

from time import process_time
from typing import Any

from tradewind.scheduler.domain.binding_limits import Demand, binding_limits
from tradewind.scheduler.domain.flow_definition import FlowDefinition
from tradewind.scheduler.domain.placement import Placement, WorkerView, placements
from tradewind.scheduler.domain.system_limits import SystemLimits
from tradewind.scheduler.domain.weather import read_weather

MINUTE = 60_000


def fan(width: int, **more: Any) -> FlowDefinition:
    """Return a flow of one source, `width` nodes that need it, and one separate node."""
    nodes = [{"id": "feed", "type": "feed"}, {"id": "alone", "type": "model"}]
    nodes += [{"id": f"n{place}", "type": "model", **more} for place in range(width)]
    edges = [
        {"source": "feed", "source_handle": "out", "target": f"n{place}", "target_handle": "in"}
        for place in range(width)
    ]
    definition = read_weather({"interval": 60, "nodes": nodes, "edges": edges}).definition
    assert definition is not None
    return definition


def bound(
    definition: FlowDefinition,
    limits: SystemLimits | None = None,
    offers: tuple[Placement, ...] = (),
    planned: tuple[int, ...] = (),
) -> list[tuple[str, str, str, str, int]]:
    demand = Demand(definition, definition.structure())
    found = binding_limits(definition, demand, limits or SystemLimits(), offers, planned)
    return [(each.limit, each.subject, each.allowed, each.wanted, each.in_use) for each in found]


def test_demand_adds_up_components_but_not_waves() -> None:
    definition = fan(5)
    demand = Demand(definition, definition.structure())
    assert demand.total == 6
    assert demand.widest(lambda node: node.node_type) == {"feed": 1, "model": 6}
    joined = read_weather(
        {
            "interval": 60,
            "nodes": [{"id": name, "type": "model"} for name in "abcd"],
            "edges": [{"source": name, "source_handle": "out", "target": "d", "target_handle": name} for name in "abc"],
        }
    ).definition
    assert joined is not None
    assert Demand(joined, joined.structure()).total == 3


def test_limits_of_a_long_chain_of_as_many_types_are_found_within_a_second() -> None:
    nodes = [{"id": f"n{place}", "type": f"t{place}"} for place in range(10_000)]
    edges = [
        {"source": f"n{place}", "source_handle": "out", "target": f"n{place + 1}", "target_handle": "in"}
        for place in range(9_999)
    ]
    definition = read_weather({"interval": 60, "nodes": nodes, "edges": edges}).definition
    assert definition is not None
    began = process_time()
    assert bound(definition, SystemLimits(max_running=1)) == []
    assert process_time() - began < 1


def test_mapped_node_counts_max_parallel_times() -> None:
    definition = fan(1, map="in", max_parallel=7)
    assert Demand(definition, definition.structure()).total == 8


def test_nodes_of_built_in_types_count_towards_no_limit() -> None:
    nodes = [{"id": f"n{place}", "type": "delay", "config": {"seconds": 1}} for place in range(3)]
    weather = {"interval": 60, "max_running": 1, "nodes": [*nodes, {"id": "a", "type": "t"}]}
    definition = read_weather(weather).definition
    assert definition is not None
    assert Demand(definition, definition.structure()).total == 1
    assert bound(definition, SystemLimits(max_running_per_node_type={"delay": 1})) == []
    waiting = read_weather({"interval": 60, "max_running": 1, "nodes": nodes}).definition
    assert waiting is not None
    assert bound(waiting) == []


def test_limit_binds_when_more_nodes_can_be_ready_at_once() -> None:
    limits = SystemLimits(
        max_running=100,
        max_running_per_user=5,
        max_running_per_flow=6,
        max_running_per_node_type={"model": 5, "feed": 1, "other": 1},
    )
    assert bound(fan(5), limits) == [
        ("config.max_running_per_user", "", "5", "6", 0),
        ("config.max_running_per_node_type", "model", "5", "6", 0),
    ]
    assert bound(fan(4), limits) == []
    assert bound(fan(5), SystemLimits(max_running_per_flow=5)) == [("config.max_running_per_flow", "", "5", "6", 0)]


def test_running_nodes_count_towards_the_limit() -> None:
    limits = SystemLimits(max_running=9, max_running_per_user=10, running=4)
    assert bound(fan(5), limits) == [("config.max_running", "", "9", "6", 4)]
    of_user = SystemLimits(max_running_per_user=9, max_running_per_flow=9, running=4)
    assert bound(fan(5), of_user) == [("config.max_running_per_user", "", "9", "6", 4)]


def test_limits_of_the_flow_itself_bind() -> None:
    key = {"key": "acct", "max": 2}
    assert bound(fan(3, concurrency=key)) == [("concurrency", "acct", "2", "3", 0)]
    assert bound(fan(2, concurrency=key)) == []
    limited = read_weather(
        {"interval": 1, "max_running": 1, "nodes": [{"id": name, "type": "t"} for name in "ab"]}
    ).definition
    assert limited is not None
    assert bound(limited) == [("max_running", "", "1", "2", 0)]


def test_rate_binds_when_the_schedule_or_a_single_cycle_exceeds_it() -> None:
    every_minute = tuple(range(90 * MINUTE, 100 * MINUTE, MINUTE))
    limits = SystemLimits(rates={"model": "5/m", "feed": "1/m"})
    assert bound(fan(5), limits, planned=every_minute) == [("config.rates", "model", "5/m", "6/m", 0)]
    assert bound(fan(4), limits, planned=every_minute) == []
    daily = SystemLimits(rates={"feed": "1000/d"})
    assert bound(fan(4), daily, planned=(0, 125)) == [("config.rates", "feed", "1000/d", "691200/d", 0)]
    assert bound(fan(5), limits, planned=(0, 60 * MINUTE)) == [("config.rates", "model", "5/m", "6", 0)]
    assert bound(fan(5), limits) == [("config.rates", "model", "5/m", "6", 0)]
    assert bound(fan(5), limits, planned=(0,)) == [("config.rates", "model", "5/m", "6", 0)]
    costly = fan(3, rate={"key": "acct", "limit": "10/s", "cost": 4})
    assert bound(costly, planned=every_minute) == [("rate", "acct", "10/s", "12", 0)]


def test_message_says_how_long_a_rate_holds_up_a_cycle() -> None:
    costly = fan(3, rate={"key": "acct", "limit": "10/m", "cost": 4})
    (limit,) = binding_limits(costly, Demand(costly, costly.structure()), SystemLimits(), (), ())
    assert limit.message == (
        'a cycle starts 12 nodes with key "acct", but only 10/m may begin, so its last one begins 12 s after the first'
    )
    daily = fan(3, rate={"key": "acct", "limit": "10/d", "cost": 4})
    (limit,) = binding_limits(daily, Demand(daily, daily.structure()), SystemLimits(), (), ())
    assert limit.message.endswith("so its last one begins 5 h after the first")


def test_placements_group_workers_by_node_type_without_draining_ones() -> None:
    definition = fan(5)
    workers = [
        WorkerView("w1", frozenset({"model", "feed"}), 4, 1),
        WorkerView("w2", frozenset({"model"}), 1, 3),
        WorkerView("w3", frozenset({"model"}), 8, 0, draining=True),
        WorkerView("w4", frozenset({"other"}), 8, 0),
    ]
    offers = placements(definition.nodes, workers)
    assert offers == (
        Placement("feed", 1, ("w1",), 4, 3, 0),
        Placement("model", 6, ("w1", "w2"), 5, 3, 1),
    )
    assert bound(definition, offers=offers) == [("worker_slots", "model", "5", "6", 2)]
    roomy = placements(definition.nodes, [*workers, WorkerView("w5", frozenset({"model"}), 1, 0)])
    assert bound(definition, offers=roomy) == []
    no_workers = placements(definition.nodes, [])
    assert [(each.node_type, each.slots) for each in no_workers] == [("feed", 0), ("model", 0)]
    assert bound(definition, offers=no_workers) == []
