"""The store goes away and comes back under a node task manager and its workers."""

import asyncio
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from tests.ports import free_port
from tests.rpc.node_task_manager.conftest import Ntm, RawWorker, plan
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.node_task_manager.app import NodeTaskManager
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.node_task_manager.stores.keys import ACL
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.redis.embedded import EmbeddedStore


@pytest_asyncio.fixture
async def store(tmp_path: Path):  # type: ignore[no-untyped-def]
    store = EmbeddedStore(tmp_path, port=free_port(), acl_users=[ACL])
    await store.start()
    yield store
    await store.stop()


async def test_reports_made_during_an_outage_take_effect_afterwards(store: EmbeddedStore) -> None:
    settings = NodeTaskManagerSettings(store_url=store.url_for("node_task_manager"), registry_address="")
    server = Server([NodeTaskManager(settings)], drain_s=1)
    await server.start()
    channel = open_channel(server.address)
    ntm = Ntm(server, channel)
    worker = RawWorker(ntm.stub, "w1")
    try:
        await worker.open()
        await ntm.submit(plan(("a", "out", "b", "in")))
        (a,) = await worker.assigned()
        await store.stop()
        reporting = asyncio.create_task(worker.complete(a.token, out="1"))
        again = EmbeddedStore(store.directory, port=store.port, acl_users=[ACL])
        await again.start()
        try:
            await reporting
            await worker.assigned(2)
            await until(lambda: any(r.resync for r in worker.responses), "the worker is asked to resync")
        finally:
            await worker.close()
            await channel.close()
            await server.stop()
            await again.stop()
    finally:
        await channel.close()
        await server.stop()


async def test_refused_submissions_are_logged_once_whatever_streams_they_come_over(store: EmbeddedStore) -> None:
    settings = NodeTaskManagerSettings(store_url=store.url_for("node_task_manager"), registry_address="")
    server = Server([NodeTaskManager(settings)], drain_s=1)
    await server.start()
    channel = open_channel(server.address)
    stub = Ntm(server, channel).stub
    known = plan(nodes="a")
    part = component_pb2.ComponentSubmission(component_id="0", plan_digest=known.digest)
    run = component_pb2.RunSubmission(flow_id="f", run_id="r0", user_id="default", components=[part])
    request = pb2.SubmitComponentsRequest(runs=[run], plans=[known])
    try:
        await store.stop()
        with capture_logs() as logged:
            for number in range(1, 4):
                call = stub.StreamSubmissions()
                await call.write(pb2.StreamSubmissionsRequest(number=number, request=request))
                answer = await call.read()
                assert isinstance(answer, pb2.StreamSubmissionsResponse)
                assert answer.error_status
                call.cancel()
        assert [each["event"] for each in logged].count("calls_refused") == 1
    finally:
        await channel.close()
        await server.stop()


async def test_store_that_hangs_delays_the_end_once_for_all_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Dispatcher] = []
    all_asked = asyncio.Event()

    async def stop(dispatcher: Dispatcher) -> None:
        asked.append(dispatcher)
        if len(asked) == 3:
            all_asked.set()
        await all_asked.wait()

    monkeypatch.setattr(Dispatcher, "stop", stop)
    service = NodeTaskManager(NodeTaskManagerSettings(registry_address="", node_task_manager_shards=3))
    async with asyncio.timeout(10):
        await service.stop()
    assert len(set(asked)) == 3
