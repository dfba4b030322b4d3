"""Which workers are connected, and how a node is explained whose type none of them offers."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from tests.rpc.node_task_manager.conftest import Ntm, RawWorker, Start
from tests.rpc.node_task_manager.explanations import CHAIN, codes, explained
from tests.rpc.node_task_manager.test_calls import claim
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2


async def until_no_worker_explained(ntm: Ntm) -> dict[str, Any]:
    """Wait until node `a` is explained by the lack of a worker that offers its type, and return the facts."""
    facts: dict[str, Any] = {}

    async def is_explained() -> bool:
        nonlocal facts
        (code, text, facts), *others = await explained(ntm)
        listed = (await ntm.node("a")).reason
        return code == "no_live_worker" and codes(others) == ["queued"] and listed == text

    await until(is_explained, "no worker is told to offer the type")
    return facts


async def until_worker_explained(ntm: Ntm) -> None:
    async def is_explained() -> bool:
        return codes(await explained(ntm)) == ["workers_busy", "queued"]

    await until(is_explained, "some worker is told to offer the type")


async def test_every_replica_explains_that_no_worker_offers_the_type(
    start: Start, worker: Callable[..., RawWorker]
) -> None:
    here, there = await start(), await start()
    await here.submit(CHAIN)
    facts = await until_no_worker_explained(here)
    assert (facts["node_type"], facts["last_worker"], facts["until"]) == ("noop", "", "")
    first, second = worker("w1", here, capacity=0), worker("w2", there, capacity=0)
    await first.open()
    await second.open()
    await until_worker_explained(here)
    await until_worker_explained(there)
    await first.close()
    await connected(there, "w2")
    assert codes(await explained(here)) == codes(await explained(there)) == ["workers_busy", "queued"]
    await second.close()
    for each in (here, there):
        facts = await until_no_worker_explained(each)
        assert facts["last_worker"] == "w2"
        assert facts["until"].endswith("Z")
    _, text, _ = (await explained(here))[0]
    assert text == f'no live worker offers node type "noop"; w2 offered it, and was connected until {facts["until"]}'


async def connected(ntm: Ntm, *wanted: str) -> None:
    """Wait until exactly these of some workers are connected."""

    async def are() -> bool:
        request = pb2.ListConnectionsRequest(worker_ids=["w1", "w2", "u1"])
        found = (await ntm.stub.ListConnections(request)).connections
        assert all(each.connected_since.seconds for each in found)
        return tuple(each.worker_id for each in found) == wanted

    await until(are, f"connected are {wanted}")


async def test_workers_of_stopped_replica_are_not_connected(start: Start, worker: Callable[..., RawWorker]) -> None:
    here, there = await start(), await start()
    await here.submit(CHAIN)
    await worker("w2", there, capacity=0).open()
    await connected(here, "w2")
    await there.server.stop()
    facts = await until_no_worker_explained(here)
    assert facts["last_worker"] == "w2"
    await connected(here)


async def test_a_worker_that_answers_no_pings_is_not_connected(start: Start, worker: Callable[..., RawWorker]) -> None:
    ntm = await start(node_task_manager_lease_seconds=1)
    await ntm.submit(CHAIN)
    silent = worker("w1", capacity=0, at=ntm)
    await silent.open()
    await until_worker_explained(ntm)
    await until_no_worker_explained(ntm)
    await silent.send(pong=1)
    await until_worker_explained(ntm)


async def test_claiming_worker_is_connected_and_offers_claimed_types(ntm: Ntm) -> None:
    assert await claim(ntm) == []
    await connected(ntm, "u1")
    await ntm.submit(CHAIN)
    await until_worker_explained(ntm)


async def test_invalid_worker_ids_are_refused_when_listing_connections(ntm: Ntm) -> None:
    for names in (["w1", "?"], ["w"] * 1001):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ntm.stub.ListConnections(pb2.ListConnectionsRequest(worker_ids=names))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
