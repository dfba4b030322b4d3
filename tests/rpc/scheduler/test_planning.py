"""Planning a registration: everything is reported, nothing is stored."""

import json
from itertools import pairwise
from typing import Any

import grpc

from tests.rpc.scheduler.conftest import Client, Peers
from tests.rpc.scheduler.errors import refused
from tests.servers import RedisServer
from tradewind.api.node_task_manager.v1 import config_pb2
from tradewind.api.registry.v1 import worker_pb2
from tradewind.api.scheduler.v1 import flow_pb2, plan_pb2, revision_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2

FAN: dict[str, Any] = {
    "interval": 60,
    "max_running": 2,
    "nodes": [
        {"id": "feed", "type": "feed"},
        *({"id": name, "type": "model"} for name in "xyz"),
        {"id": "alone", "type": "feed"},
    ],
    "edges": [
        {"source": "feed", "source_handle": "prices", "target": name, "target_handle": "prices"} for name in "xyz"
    ],
}


async def planned(scheduler: Client, definition: dict[str, Any] | None = None, **fields: Any) -> Any:
    request = pb2.RegisterFlowRequest(
        flow_id=fields.pop("flow_id", "f"), weather_json=json.dumps(definition or FAN), validate_only=True, **fields
    )
    return await scheduler.stub.RegisterFlow(request)


async def register(scheduler: Client, definition: dict[str, Any] | None = None) -> flow_pb2.Flow:
    request = pb2.RegisterFlowRequest(flow_id="f", weather_json=json.dumps(definition or FAN))
    return (await scheduler.stub.RegisterFlow(request)).flow


async def test_planning_stores_nothing(scheduler: Client, embedded: RedisServer) -> None:
    def of_flows(keys: list[str]) -> list[str]:
        return [key for key in keys if ":flow" in key or ":request" in key or ":outbox" in key]

    response = await planned(scheduler, request_id="r1", note="why")
    assert response.changed
    assert not response.HasField("flow")
    assert of_flows(await embedded.keys()) == []
    await register(scheduler)
    before = await scheduler.flow()
    assert (await planned(scheduler, {**FAN, "interval": 5})).changed
    assert await scheduler.flow() == before


async def test_plan_lists_the_waves_of_each_component(scheduler: Client) -> None:
    plan = (await planned(scheduler)).plan
    assert [
        (component.component_id, component.node_count, [list(wave.nodes) for wave in component.waves])
        for component in plan.components
    ] == [("0", 4, [["feed"], ["x", "y", "z"]]), ("1", 1, [["alone"]])]
    many = {"interval": 0, "nodes": [{"id": f"n{place}", "type": "t"} for place in range(150)]}
    many["edges"] = [
        {"source": "n0", "source_handle": "o", "target": f"n{place}", "target_handle": "i"} for place in range(1, 150)
    ]
    (component,) = (await planned(scheduler, many)).plan.components
    assert [(wave.node_count, len(wave.nodes)) for wave in component.waves] == [(1, 1), (149, 100)]


async def test_plan_contains_all_faults(scheduler: Client) -> None:
    bad = {**FAN, "interval": "soon", "edges": [{**FAN["edges"][0], "target": "nobody"}]}
    response = await planned(scheduler, bad, flow_id="-", user_id="no one", labels={"a b": "c"})
    paths = [fault.path for fault in response.plan.violations]
    assert {"flow_id", "user_id", "interval", "edges[0].target"} <= set(paths)
    assert any(path.startswith("labels") for path in paths)
    assert not response.changed
    past = {**FAN, "schedule": {"at": "2020-01-01T00:00:00Z"}}
    del past["interval"]
    assert [fault.path for fault in (await planned(scheduler, past)).plan.violations] == ["schedule"]


async def test_planning_is_refused_where_registration_would_be(scheduler: Client, peers: Peers) -> None:
    await refused(planned(scheduler, etag="1-1"), grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND")
    await register(scheduler)
    peers.node_tasks.purge_steps = 10**9
    await scheduler.stub.DeleteFlow(pb2.DeleteFlowRequest(flow_id="f"))
    await refused(planned(scheduler), grpc.StatusCode.FAILED_PRECONDITION, "FLOW_DELETING")
    peers.node_tasks.purge_steps = 1


async def test_plan_shows_changes_and_the_current_etag(scheduler: Client) -> None:
    first = (await planned(scheduler)).plan
    assert (first.standing_revision, first.etag, first.HasField("diff")) == (0, "", False)
    flow = await register(scheduler)
    same = await planned(scheduler)
    assert not same.changed
    assert (same.plan.standing_revision, same.plan.etag, same.plan.diff) == (1, flow.etag, revision_pb2.FlowDiff())
    other = await planned(scheduler, {**FAN, "overlap": "allow", "nodes": FAN["nodes"][:-1]}, labels={"team": "a"})
    assert other.changed
    assert [(node.node_id, node.kind) for node in other.plan.diff.nodes] == [
        ("alone", revision_pb2.CHANGE_KIND_REMOVED)
    ]
    assert [each.path for each in other.plan.diff.settings] == ["overlap", "labels"]


async def test_plan_omits_changes_too_large_for_an_answer(scheduler: Client) -> None:
    def large(letter: str) -> dict[str, Any]:
        nodes = [{"id": f"n{at}", "type": "t", "config": {"text": letter * 200_000}} for at in range(10)]
        return {"interval": 60, "nodes": nodes}

    await register(scheduler, large("x"))
    response = await planned(scheduler, large("y"))
    plan = response.plan
    assert (response.changed, plan.standing_revision, plan.HasField("diff")) == (True, 1, False)
    assert (len(plan.components), len(plan.placements), len(plan.next_times)) == (10, 1, 5)
    assert [warning.message for warning in response.warnings if warning.path == "flow"] == [
        "the changes from revision 1 take more than 3 MiB, so the plan leaves them out; get that revision to compare"
    ]


async def test_placement_names_live_workers(scheduler: Client, peers: Peers) -> None:
    draining = worker_pb2.WORKER_STATUS_DRAINING
    peers.registry.workers = [
        worker_pb2.Worker(worker_id="w1", node_types=["feed", "model"], capacity=2, running=1),
        worker_pb2.Worker(worker_id="w2", node_types=["model"], capacity=9, status=draining),
    ]
    plan = (await planned(scheduler)).plan
    assert list(plan.placements) == [
        plan_pb2.Placement(node_type="feed", node_count=2, worker_count=1, worker_ids=["w1"], slots=2, free_slots=1),
        plan_pb2.Placement(
            node_type="model", node_count=3, worker_count=1, worker_ids=["w1"], slots=2, free_slots=1, draining=1
        ),
    ]
    assert [(each.limit, each.subject, each.allowed, each.wanted) for each in plan.limits] == [
        ("max_running", "", "2", "4"),
        ("worker_slots", "model", "2", "3"),
    ]
    peers.registry.workers = [worker_pb2.Worker(worker_id="w1", node_types=["feed"], capacity=2, status=draining)]
    leaving = (await planned(scheduler)).warnings
    assert [warning.message for warning in leaving if warning.path == "nodes"] == [
        'every live worker that offers node type "feed" is draining, so its nodes wait for another worker'
    ]


async def test_plan_warns_of_unoffered_node_types(scheduler: Client, peers: Peers) -> None:
    response = await planned(scheduler)
    assert [each.worker_count for each in response.plan.placements] == [0, 0]
    assert {warning.path for warning in response.warnings} == {"nodes[0].type", "nodes[1].type"}
    peers.registry.down = True
    away = await planned(scheduler, {"interval": 0, "nodes": [{"id": "a", "type": "unseen"}]})
    assert ["the registry cannot be reached" in warning.message for warning in away.warnings] == [True, True]
    assert list(away.plan.placements) == []


async def test_plan_shows_binding_system_limits_with_their_use(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.config.CopyFrom(
        config_pb2.SystemConfig(
            max_running_per_user=5, max_running_per_node_type={"model": 2, "feed": 9}, rates={"model": "2/m"}
        )
    )
    peers.node_tasks.running = {"ann": 3}
    free = (await planned(scheduler)).plan
    assert [(each.limit, each.subject, each.allowed, each.wanted) for each in free.limits] == [
        ("max_running", "", "2", "4"),
        ("config.max_running_per_node_type", "model", "2", "3"),
        ("config.rates", "model", "2/m", "3/m"),
    ]
    busy = (await planned(scheduler, user_id="ann")).plan
    (limit,) = [each for each in busy.limits if each.limit == "config.max_running_per_user"]
    assert (limit.allowed, limit.wanted, limit.in_use) == ("5", "4", 3)
    assert limit.message == "4 nodes can be ready at once, but at most 5 may run, and 3 of this user's are running now"
    peers.node_tasks.down = True
    away = await planned(scheduler)
    assert [each.limit for each in away.plan.limits] == ["max_running"]
    assert any("node task manager" in warning.message for warning in away.warnings)
    peers.node_tasks.down = False


async def test_plan_shows_the_next_planned_times(scheduler: Client) -> None:
    def times(response: Any) -> list[int]:
        return [each.ToMilliseconds() for each in response.plan.next_times]

    first = times(await planned(scheduler))
    assert len(first) == 5
    assert {later - earlier for earlier, later in pairwise(first)} == {60_000}
    await register(scheduler)
    running = await scheduler.start()
    begin = running.next_execution.ToMilliseconds()
    assert times(await planned(scheduler)) == [begin + place * 60_000 for place in range(5)]
    sooner = await planned(scheduler, {**FAN, "interval": 5})
    await register(scheduler, {**FAN, "interval": 5})
    upcoming = await scheduler.stub.ListNextExecutions(pb2.ListNextExecutionsRequest(flow_id="f", count=5))
    standing = [each.ToMilliseconds() for each in upcoming.planned_times]
    gaps = {later - earlier for earlier, later in zip(times(sooner), standing, strict=True)}
    assert len(gaps) == 1
    once = await planned(scheduler, {**FAN, "interval": 0}, flow_id="once")
    assert len(once.plan.next_times) == 1
