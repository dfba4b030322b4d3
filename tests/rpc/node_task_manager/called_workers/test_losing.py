"""Called workers that are lost: connections that break, workers that die, and what comes back."""

import asyncio
from typing import Any

import grpc
import pytest

from tests.rpc.node_task_manager.called_workers.workers import (
    COMPLETED,
    LASTING,
    Make,
    Proxy,
    Registry,
    Status,
    give_a,
    hanging,
    losses,
    until_node,
)
from tests.rpc.node_task_manager.conftest import Ntm, Start, plan
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2


async def test_dead_worker_loses_its_lease_and_its_late_result_is_refused(
    start: Start, registry: Registry, make: Make
) -> None:
    """This happens long before the lease lapses."""
    ntm = await start(registry_address=registry.address, **LASTING)
    dead = await make("dead")
    first = await give_a(ntm, registry, dead)
    await dead.stop()
    other = await make("other")
    registry.workers = [other.listed()]

    (second,) = await other.has(1)
    assert second.attempt > first.attempt
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await dead.complete(ntm.stub, first.token, out="1")
    assert refused.value.code() is Status.FAILED_PRECONDITION
    await other.complete(ntm.stub, second.token, out="2")
    ended = await until_node(ntm, "a", COMPLETED)
    assert (losses(ended), ended.worker_id) == (1, "other")


async def test_renewing_worker_keeps_its_node_task_for_many_leases(
    start: Start, registry: Registry, make: Make
) -> None:
    ntm = await start(registry_address=registry.address, node_task_manager_lease_seconds=4)
    worker, other = await make("w1"), await make("w2")
    assignment = await give_a(ntm, registry, worker)
    registry.workers = [worker.listed(), other.listed()]
    deadlines: list[float] = []

    async def renewed() -> bool:
        request = pb2.ReportNodeTasksRequest(worker_id="w1", held_tokens=[assignment.token])
        answer = await ntm.stub.ReportNodeTasks(request)
        assert not answer.losses
        deadlines.append(answer.lease_deadline.ToMilliseconds())
        await asyncio.sleep(0.1)
        return deadlines[-1] > deadlines[0] + 12_000

    await until(renewed, "it has renewed for three leases")
    await worker.complete(ntm.stub, assignment.token)
    assert (await until_node(ntm, "a", COMPLETED)).attempt == 1
    assert not other.accepted


async def test_lost_worker_gets_no_node_tasks_while_still_listed(start: Start, registry: Registry, make: Make) -> None:
    ntm = await start(registry_address=registry.address, **LASTING)
    dead, other = await make("dead", capacity=100), await make("other", capacity=1)
    await give_a(ntm, registry, dead)
    await registry.list(dead.listed(), other.listed())
    await dead.stop()
    (again,) = await other.has(1)
    assert (again.node_task_id, again.attempt) == ("flow:0:0:a", 2)
    # The dead worker has the most room by far.
    await ntm.submit(plan(nodes="b", digest="p2"), flow_id="next")
    await other.complete(ntm.stub, again.token)
    _, assignment = await other.has(2)
    assert (assignment.node_task_id, assignment.attempt) == ("next:0:0:b", 1)


async def test_restored_connection_loses_nothing(start: Start, registry: Registry, make: Make) -> None:
    ntm = await start(registry_address=registry.address, **LASTING, node_task_manager_stream_grace_seconds=60)
    worker, other = await make("w1"), await make("w2")
    proxy = Proxy(worker.port)
    await proxy.start()
    listed = worker.listed(api_url=f"127.0.0.1:{proxy.port}")
    await registry.list(listed)
    await ntm.submit(plan(nodes="a"))
    (assignment,) = await worker.has(1)
    await registry.list(listed, other.listed())
    proxy.drop()
    await until(lambda: proxy.connections > 1, "there is another connection")
    # The worker is handed more over the new connection.
    await registry.list(listed)
    await ntm.submit(plan(nodes="b", digest="p2"), flow_id="next")
    await worker.has(2)
    await worker.complete(ntm.stub, assignment.token)
    ended = await until_node(ntm, "a", COMPLETED)
    assert (ended.attempt, losses(ended), other.accepted) == (1, 0, [])
    proxy.cut()


async def test_connection_broken_during_hand_over_counts_as_lost_worker(
    start: Start, registry: Registry, make: Make
) -> None:
    """The worker may have taken it: a node task that breaks workers must not go to the next one uncounted."""
    ntm = await start(registry_address=registry.address, **LASTING)
    broken, other = await make("broken"), await make("other")
    proxy = Proxy(broken.port)
    await proxy.start()

    async def breaks(context: Any) -> None:
        proxy.cut()
        await hanging(context)

    broken.refuse = breaks
    await registry.list(broken.listed(api_url=f"127.0.0.1:{proxy.port}"))
    await ntm.submit(plan(nodes="a"))
    await until(lambda: broken.calls, "it is handed over")
    await registry.list(other.listed())
    (assignment,) = await other.has(1)
    assert assignment.attempt > 1
    await other.complete(ntm.stub, assignment.token)
    assert losses(await until_node(ntm, "a", COMPLETED)) == 1


async def test_new_worker_process_loses_node_tasks_of_the_previous_one(
    ntm: Ntm, registry: Registry, make: Make
) -> None:
    worker = await make("w1")
    await give_a(ntm, registry, worker)
    registry.workers = [worker.listed(incarnation="i2")]
    again = (await worker.has(2))[1]
    assert (again.node_task_id, again.attempt) == ("flow:0:0:a", 2)
    await worker.complete(ntm.stub, again.token)
    assert losses(await until_node(ntm, "a", COMPLETED)) == 1


async def test_lost_worker_is_not_connected_while_still_listed(start: Start, registry: Registry, make: Make) -> None:
    ntm = await start(registry_address=registry.address, **LASTING)
    dead = await make("dead")
    await give_a(ntm, registry, dead)

    async def connected() -> list[str]:
        request = pb2.ListConnectionsRequest(worker_ids=["dead"])
        return [each.worker_id for each in (await ntm.stub.ListConnections(request)).connections]

    await until(connected, "the worker is connected")
    await dead.stop()

    async def is_gone() -> bool:
        return not await connected()

    await until(is_gone, "the worker is not connected any more")
