"""The cost of asking who calls, in calls that the access service serves and in commands of the stores."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.rpc.node_task_manager.conftest import RawWorker, plan
from tests.waiting import until
from tradewind.access.app import Access
from tradewind.access.rpc.handlers import AccessHandlers
from tradewind.access.settings import AccessSettings
from tradewind.api.access.v1 import access_service_pb2 as access_pb2
from tradewind.api.access.v1.access_service_pb2_grpc import AccessServiceStub
from tradewind.api.access.v1.session_pb2 import ROLE_OPERATOR
from tradewind.api.node_task_manager.v1 import component_pb2, node_task_pb2, queue_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceStub
from tradewind.grpc_engine.bearer import with_token
from tradewind.node_task_manager.app import NodeTaskManager
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.server.access.gate import Gate
from tradewind.server.access.gate_settings import gate_of
from tradewind.server.bootstrap import Server, Service
from tradewind.server.channels import open_channel
from tradewind.server.redis.client import connect
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.server.settings import CommonSettings
from tradewind.standalone.services import ACL_USERS

SECRET = "a secret of all the servers"
NODES = 200
CALLS = 50
BACKGROUND_COMMANDS = ("ping", "info", "client|", "subscribe", "ssubscribe", "hello", "auth")
"""Commands that are sent to a store even without calls."""


@pytest.fixture
def access_calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of calls of each method of the access service."""
    count: Counter[str] = Counter()
    for method in access_pb2.DESCRIPTOR.services_by_name["AccessService"].methods:
        monkeypatch.setattr(AccessHandlers, method.name, _counted(count, method.name))
    return count


@pytest.fixture
def notified_gates(monkeypatch: pytest.MonkeyPatch) -> set[Gate]:
    """The gates that have been notified of changes."""
    gates: set[Gate] = set()
    changed = Gate._on_change

    def record_change(self: Gate, user_id: str | None) -> None:
        changed(self, user_id)
        gates.add(self)

    monkeypatch.setattr(Gate, "_on_change", record_change)
    return gates


def _counted(count: Counter[str], name: str) -> Any:
    original = getattr(AccessHandlers, name)

    def call(self: AccessHandlers, request: Any, context: Any) -> Any:
        count[name] += 1
        return original(self, request, context)

    return call


@dataclass
class RunningServer:
    """A server over its own store."""

    address: str
    store: EmbeddedStore

    async def commands(self) -> Counter[str]:
        """Return how often each command has been run so far, including those in scripts."""
        admin = connect(self.store.url_for(), max_connections=1)
        try:
            stats = await admin.info("commandstats")
        finally:
            await admin.end()
        commands = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
        return Counter({name: calls for name, calls in commands.items() if not name.startswith(BACKGROUND_COMMANDS)})


@asynccontextmanager
async def running_service(home: Path, kind: Any, settings: Any, **options: Any) -> AsyncIterator[RunningServer]:
    """Run one service over a fresh store."""
    store = EmbeddedStore(home, acl_users=ACL_USERS)
    await store.start()
    try:
        user = settings.__name__.removesuffix("Settings")
        user = {"Access": "access", "NodeTaskManager": "node_task_manager"}[user]
        values: CommonSettings = settings(store_url=store.url_for(user), service_token=SECRET, port=0, **options)
        service: Service = kind(values)
        server = Server([service], drain_s=2, gate=gate_of(values, [service]))
        await server.start()
        try:
            yield RunningServer(server.address, store)
        finally:
            await server.stop()
    finally:
        await store.stop()


@asynccontextmanager
async def running_manager(
    home: Path, access: RunningServer | None, notified_gates: set[Gate], cache_s: float = 60
) -> AsyncIterator[tuple[RunningServer, Any]]:
    """Run a node task manager that asks `access`, if given; yield it with a stub that calls as an operator.

    By then its gate and that of `access` are notified of changes, so neither has a reason to ask again.
    """
    options = {"access_address": access.address if access else None, "access_cache_seconds": cache_s}
    quiet = {"node_task_manager_clean_seconds": 600, "node_task_manager_poll_seconds": 600, "registry_address": ""}
    token = await _token(access) if access is not None else None
    async with (
        running_service(home, NodeTaskManager, NodeTaskManagerSettings, **options, **quiet) as place,
        open_channel(place.address, traced=False) as channel,
    ):
        if access is not None:
            await until(lambda: len(notified_gates) == 2, "both gates are notified of changes")
        yield place, NodeTaskManagerServiceStub(with_token(channel, token))


async def _token(access: RunningServer) -> str:
    request = access_pb2.CreateTokenRequest(user_id="olga", role=ROLE_OPERATOR)
    async with open_channel(access.address, traced=False) as channel:
        return (await AccessServiceStub(with_token(channel, SECRET)).CreateToken(request)).token


async def run_nodes(place: RunningServer, stub: Any, service_stub: Any, run: int) -> int:
    """Run `NODES` nodes one after the other over an open stream; return how many scripts that took."""
    worker = RawWorker(stub, "w1")
    await worker.open(incarnation=f"i{run}")
    edges = [(f"n{at}", "out", f"n{at + 1}", "in") for at in range(NODES - 1)]
    chain = plan(*edges, digest="chain")
    before, last = await place.commands(), 0
    part = component_pb2.ComponentSubmission(component_id="0", plan_digest="chain")
    message = component_pb2.RunSubmission(
        flow_id="flow", run_id=f"r{run}", user_id="default", cycle=run, components=[part]
    )
    await service_stub.SubmitComponents(pb2.SubmitComponentsRequest(runs=[message], plans=[chain]))
    for at in range(NODES):
        given = await worker.assigned(at + 1)
        done = work_pb2.NodeTaskCompletion(
            token=given[at].token, outputs=[node_task_pb2.Output(handle="out", value_json="1")]
        )
        last = await worker.send(completions=[done])
    await worker.acknowledged(last)
    spent = await place.commands() - before
    await worker.close()
    return spent["fcall"]


async def test_node_tasks_on_open_stream_cause_no_access_calls(
    tmp_path: Path, access_calls: Counter[str], notified_gates: set[Gate]
) -> None:
    """No calls, no commands in its store, and no additional commands in the store of the nodes."""
    async with running_manager(tmp_path / "off", None, notified_gates) as (place, stub):
        without = await run_nodes(place, stub, stub, 0)
    async with (
        running_service(tmp_path / "access", Access, AccessSettings) as access,
        running_manager(tmp_path / "on", access, notified_gates) as (place, stub),
        open_channel(place.address, traced=False) as channel,
    ):
        service_stub = NodeTaskManagerServiceStub(with_token(channel, SECRET))
        await stub.GetQueueStats(queue_pb2.GetQueueStatsRequest())
        assert access_calls["Authorize"] == 1
        access_calls.clear()
        asked, spent = [], []
        for run in range(5):
            before = await access.commands()
            spent.append(await run_nodes(place, stub, service_stub, run))
            asked.append((await access.commands() - before).total())
            if spent[-1] < without + NODES // 2:
                break
    assert access_calls == Counter()
    # On a busy machine more time passes, in which servers do their own upkeep; a command per node would be 200.
    assert min(asked) < NODES // 2
    assert min(spent) < without + NODES // 2


@pytest.mark.parametrize(("cache_s", "lookups"), [(60, 1), (0, CALLS)])
async def test_unary_call_costs_at_most_one_token_lookup(
    tmp_path: Path, access_calls: Counter[str], notified_gates: set[Gate], cache_s: float, lookups: int
) -> None:
    async with (
        running_service(tmp_path / "access", Access, AccessSettings) as access,
        running_manager(tmp_path / "on", access, notified_gates, cache_s) as (_, stub),
    ):
        access_calls.clear()
        asked = await access.commands()
        for _ in range(CALLS):
            await stub.GetQueueStats(queue_pb2.GetQueueStatsRequest())
        spent = await access.commands() - asked
    assert access_calls == Counter(Authorize=lookups)
    assert spent["fcall"] == lookups
