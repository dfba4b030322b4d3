"""Large flows: whatever is done with them, other calls have their turns."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Struct

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.turns import counted_turns
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as ntm_pb2
from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2, revision_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.peers import submissions
from tradewind.server.large_work import in_thread_if

NODES = 2000
MOST_CALLS = 12_000
"""In one turn of the loop: some 3 ms. To add 2000 nodes to a message takes 18 000, to parse them half a million."""


def weather(nodes: int, **last: Any) -> dict[str, Any]:
    """Return a chain; `last` are further fields of its last node."""
    listed = [{"id": f"n{at}", "type": "noop", "config": {"at": at}} for at in range(nodes)]
    listed[-1] |= last
    edges = [
        {"source": f"n{at}", "source_handle": "out", "target": f"n{at + 1}", "target_handle": "in"}
        for at in range(nodes - 1)
    ]
    return {"interval": "1d", "overlap": "allow", "nodes": listed, "edges": edges}


def spec(nodes: int) -> flow_pb2.FlowSpec:
    given = weather(nodes)
    listed = [
        flow_pb2.NodeSpec(id=each["id"], type="noop", config_json=json.dumps(each["config"])) for each in given["nodes"]
    ]
    edges = [flow_pb2.EdgeSpec(**each) for each in given["edges"]]
    return flow_pb2.FlowSpec(interval="1d", overlap=flow_pb2.OVERLAP_POLICY_ALLOW, nodes=listed, edges=edges)


async def ran_with_many_sinks(scheduler: Client, peers: Peers) -> None:
    """Run the flow `sinks`, all of whose nodes follow the first one, and the last of which has failed."""
    definition = weather(NODES)
    for edge in definition["edges"]:
        edge["source"] = "n0"
    await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="sinks", weather_json=json.dumps(definition)))
    cycle = await scheduler.run("sinks")
    statuses = [node_task_pb2.NODE_TASK_STATUS_COMPLETED] * (NODES - 1) + [node_task_pb2.NODE_TASK_STATUS_FAILED]
    peers.node_tasks.nodes["sinks", 0, 0] = [
        node_task_pb2.NodeTask(node_id=f"n{at}", run_id=cycle.run_id, status=status, emitted_handles=["out"])
        for at, status in enumerate(statuses)
    ]


async def test_no_call_for_a_large_flow_keeps_the_loop_for_long(scheduler: Client, start: Start, peers: Peers) -> None:
    first, second = json.dumps(weather(NODES)), json.dumps(weather(NODES, priority=1))
    struct = Struct()
    struct.update(weather(NODES))
    definition = flow_pb2.FlowDefinition(weather_json=first)
    stub, other = scheduler.stub, (await start()).stub
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "analyse": lambda: stub.AnalyzeFlow(pb2.AnalyzeFlowRequest(definition=definition)),
        "register": lambda: stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", weather_json=first)),
        "register it again": lambda: stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", weather_json=first)),
        "register a Struct": lambda: stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="g", weather=struct)),
        "register a spec": lambda: stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="h", spec=large)),
        "plan a change": lambda: stub.RegisterFlow(
            pb2.RegisterFlowRequest(flow_id="f", weather_json=second, validate_only=True)
        ),
        "register a change": lambda: stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", weather_json=second)),
        "compare": lambda: stub.DiffRevisions(revision_pb2.DiffRevisionsRequest(flow_id="f")),
        "update": lambda: stub.UpdateFlow(
            revision_pb2.UpdateFlowRequest(
                flow_id="f", spec=flow_pb2.FlowSpec(description="d"), update_mask=FieldMask(paths=["description"])
            )
        ),
        "roll back": lambda: stub.RollBackFlow(revision_pb2.RollBackFlowRequest(flow_id="f", revision=1)),
        "run": lambda: scheduler.run("f"),
        "run again": lambda: scheduler.run("f"),
        "run where it is unknown": lambda: other.RunFlow(pb2.RunFlowRequest(flow_id="f")),
        "read outputs": lambda: stub.GetCycle(pb2.GetCycleRequest(flow_id="sinks", include_outputs=True)),
        "rerun": lambda: stub.RerunCycle(pb2.RerunCycleRequest(flow_id="sinks")),
        "read": lambda: stub.GetFlow(pb2.GetFlowRequest(flow_id="f")),
        "list": lambda: stub.ListFlows(pb2.ListFlowsRequest()),
    }
    large = spec(NODES)
    await ran_with_many_sinks(scheduler, peers)
    long: dict[str, Any] = {}
    for name, call in calls.items():
        with counted_turns() as longest:
            await call()
        if longest.calls > MOST_CALLS:
            long[name] = longest
    assert long == {}
    assert len(peers.node_tasks.plans) == 2


async def test_small_flows_are_registered_while_large_ones_are_checked(scheduler: Client) -> None:
    struct, checked = Struct(), threading.Event()
    struct.update(weather(2))
    large = asyncio.ensure_future(in_thread_if(True, checked.wait, 60))
    try:
        for request in (
            pb2.RegisterFlowRequest(flow_id="f", weather_json=json.dumps(weather(2))),
            pb2.RegisterFlowRequest(flow_id="g", weather=struct),
            pb2.RegisterFlowRequest(flow_id="h", spec=spec(2)),
        ):
            await scheduler.stub.RegisterFlow(request, timeout=30)
        assert not large.done()
    finally:
        checked.set()
        await large


async def test_small_flow_runs_while_the_plan_of_a_large_one_is_stored(
    scheduler: Client, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted, stored = peers.node_tasks._submitted, asyncio.Event()
    storing: list[int] = []

    async def slowly(request: ntm_pb2.SubmitComponentsRequest) -> ntm_pb2.SubmitComponentsResponse:
        if any(len(plan.nodes) == NODES for plan in request.plans):
            storing.append(NODES)
            await stored.wait()
        return await submitted(request)

    monkeypatch.setattr(peers.node_tasks, "_submitted", slowly)
    monkeypatch.setattr(submissions, "_TIMEOUT_S", 60)
    await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="large", weather_json=json.dumps(weather(NODES))))
    await scheduler.register("small")
    large = asyncio.ensure_future(scheduler.run("large"))
    await until(lambda: bool(storing), "the plan is being stored")
    assert (await scheduler.run("small")).status == cycle_pb2.CYCLE_STATUS_COMPLETED
    assert not large.done()
    stored.set()
    assert (await large).status == cycle_pb2.CYCLE_STATUS_COMPLETED
