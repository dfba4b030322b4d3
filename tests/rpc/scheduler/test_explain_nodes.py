"""ExplainNode: what is queued, withheld, an item of a list, or part of a run that has ended."""

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.rpc.scheduler.conftest import Client, Peers
from tests.rpc.scheduler.errors import refused
from tests.rpc.scheduler.explanations import explain_node, set_node_reasons, submitted
from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.registry.v1 import worker_pb2
from tradewind.api.scheduler.v1 import cycle_pb2
from tradewind.server.reasons import no_live_worker


def worker(name: str, status: worker_pb2.WorkerStatus.ValueType, running: int = 0) -> worker_pb2.Worker:
    return worker_pb2.Worker(
        worker_id=name,
        node_types=["noop"],
        capacity=4,
        running=running,
        status=status,
        last_heartbeat=Timestamp(seconds=1_700_000_000),
    )


async def test_queued_node_shows_the_workers_of_its_type(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register()
    await scheduler.run(wait=0)
    await submitted(peers)
    nobody = no_live_worker("noop", last_worker="w3", until="2026-11-21T09:10:41.000Z")
    set_node_reasons(peers, (nobody.code, nobody.sentence, nobody.facts), ("queued", "is queued"))
    # On record the worker may count as alive for a while.
    peers.registry.workers = [worker("w3", worker_pb2.WORKER_STATUS_ACTIVE)]
    found = await explain_node(scheduler)
    assert list(found) == ["no_live_worker", "queued"]
    assert found["no_live_worker"] == (nobody.sentence, nobody.facts)

    peers.registry.workers = [worker("old", worker_pb2.WORKER_STATUS_OFFLINE)]
    sentence, facts = (await explain_node(scheduler))["no_live_worker"]
    assert facts["gone"] == [{"worker_id": "old", "last_heartbeat": "2023-11-14T22:13:20.000Z"}]
    assert sentence == nobody.sentence
    set_node_reasons(peers, (nobody.code, nobody.sentence), ("queued", "is queued"))
    sentence, _ = (await explain_node(scheduler))["no_live_worker"]
    assert "old offered it, and was last heard from at 2023-11-14T22:13:20.000Z" in sentence

    # A connected worker offers the type.
    set_node_reasons(peers, ("workers_busy", "waits for a worker"), ("queued", "is queued"))
    assert list(await explain_node(scheduler)) == ["workers_busy", "queued"]
    peers.registry.workers.append(worker("leaving", worker_pb2.WORKER_STATUS_DRAINING))
    sentence, facts = (await explain_node(scheduler))["no_live_worker"]
    assert facts["draining"] == ["leaving"]
    assert "leaving offers it, but is draining" in sentence

    peers.node_tasks.connected = {"here"}
    peers.registry.workers.append(worker("here", worker_pb2.WORKER_STATUS_ACTIVE, running=3))
    peers.registry.workers.append(worker("killed", worker_pb2.WORKER_STATUS_ACTIVE))
    sentence, facts = (await explain_node(scheduler))["workers_busy"]
    assert (facts["workers"], facts["slots"], facts["free_slots"]) == (1, 4, 1)
    assert facts["not_connected"] == ["killed"]
    assert "1 offers it, with 4 slots, of which 1 were free" in sentence
    assert sentence.endswith("; killed offers it, but is not connected")
    peers.registry.workers.pop()
    assert "is not connected" in (await explain_node(scheduler))["workers_busy"][0]
    peers.registry.workers[-1].running = 4
    assert "is not connected" not in (await explain_node(scheduler))["workers_busy"][0]
    set_node_reasons(peers, ("queued", "is queued"), ("limit_full", "waits for a limit"))
    assert list(await explain_node(scheduler)) == ["limit_full", "workers_busy", "queued"]
    # Workers with room are not why it waits.
    peers.registry.workers[-1].running = 3
    for limit in ("limit_full", "rate_limited"):
        set_node_reasons(peers, ("queued", "is queued"), (limit, "waits for a limit"))
        assert list(await explain_node(scheduler)) == [limit, "queued"]


async def test_node_of_a_component_not_yet_handed_over_is_withheld(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", "a", "b")
    await scheduler.run(wait=0)
    await submitted(peers)
    # The node task manager has the run, but not the node.
    assert list(await explain_node(scheduler)) == ["withheld"]


async def test_list_item_is_explained_like_a_node(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register()
    await scheduler.run(wait=0)
    await submitted(peers)
    # The node task manager does not know the node yet, and so none of its items.
    assert list(await explain_node(scheduler, "a:3")) == ["withheld"]
    item = node_task_pb2.NodeTask(node_id="a", node_type="noop", status=node_task_pb2.NODE_TASK_STATUS_RUNNING)
    peers.node_tasks.explained["f:0:0:a:3"] = (item, [("running", "runs")])
    assert list(await explain_node(scheduler, "a:3")) == ["running"]


@pytest.mark.parametrize(
    ("items", "hint"),
    [
        (None, 'node "a" does not run over a list'),
        (0, 'node "a" got an empty list'),
        (3, 'node "a" has 3 items, counted from 0'),
    ],
    ids=["no list", "empty list", "short list"],
)
async def test_item_outside_its_list_is_not_found(
    scheduler: Client, peers: Peers, items: int | None, hint: str
) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register()
    await scheduler.run(wait=0)
    await submitted(peers)
    set_node_reasons(peers, ("queued", "is queued"))
    if items is not None:
        peers.node_tasks.explained["f:0:0:a"][0].items.CopyFrom(node_task_pb2.ItemCounts(total=items))
    error = await refused(explain_node(scheduler, "a:3"), grpc.StatusCode.NOT_FOUND, "NODE_TASK_NOT_FOUND")
    assert error.message == f'no node task "f:0:0:a:3"; {hint}'


async def test_invalid_item_index_is_refused(scheduler: Client) -> None:
    await scheduler.register()
    await scheduler.run()
    for name in ("a:x", "a:", "a:-1", "a:1:2", ":1", "a:99999999999"):
        await refused(explain_node(scheduler, name), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")


async def test_ended_run_shows_its_failed_nodes(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", "a", "b")
    await scheduler.run(wait=0)
    await submitted(peers)
    error = node_task_pb2.NodeTaskError(code="NODE_ERROR", message="no luck")
    failed = node_task_pb2.NodeTask(node_id="a", status=node_task_pb2.NODE_TASK_STATUS_FAILED, error=error)
    peers.node_tasks.nodes["f", 0, 0] = [failed]
    for component_id in ("0", "1"):
        await peers.node_tasks.finish(("f", 0, 0), component_id, sinks_completed=0, failed=1)
    assert (await scheduler.ended()).status == cycle_pb2.CYCLE_STATUS_FAILED
    sentence, facts = (await explain_node(scheduler, "b"))["run_ended"]
    assert facts["status"] == "failed"
    assert facts["failed_nodes"] == [{"node_id": "a", "error_code": "NODE_ERROR", "error_message": "no luck"}]
    assert sentence.endswith('node "a": NODE_ERROR: no luck')
