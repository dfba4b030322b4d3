"""RunDoctor of the registry: each invariant is broken by hand, found and mended."""

import pytest
from structlog.testing import capture_logs

from tests.rpc.registry.conftest import AVERAGE, Stub, a_worker, register
from tests.servers import RedisServer
from tradewind.api.registry.v1 import doctor_pb2
from tradewind.api.registry.v1 import registry_service_pb2 as pb2

BASE = "trading_flow:{registry}:"
OF_ANOTHER_TYPE = (
    "workers:w", "node_types:average", "node_types:average:workers",
    "alive", "worker_ids", "loads", "node_type_names", "node_type_lapses", "called",
)  # fmt: skip
BROKEN = [
    (("DEL", "workers:w"), "index-without-record", "alive w"),
    (("PERSIST", "workers:w"), "no-time-to-live", "worker w"),
    (("ZREM", "worker_ids", "w"), "worker-not-listed", "w"),
    (("ZREM", "called", "w"), "worker-not-listed", "w called"),
    (("ZREM", "node_types:average:workers", "w"), "worker-not-listed", "w average"),
    (("DEL", "node_types:average"), "index-without-record", "node_types average"),
    (("ZREM", "node_type_names", "average"), "node-type-not-listed", "average"),
    (("HSET", "workers:w", "supported_nodes", "[]"), "node-type-without-worker", "average w"),
    *((("SET", key, "x"), "key-of-another-type", BASE + key) for key in OF_ANOTHER_TYPE),
]


async def found(registry: Stub, *, mend: bool = False) -> list[tuple[str, str, bool]]:
    call = registry.RunDoctor(doctor_pb2.RunDoctorRequest(mend=mend))
    return [(each.check, each.subject, each.mended) async for answer in call for each in answer.findings]


@pytest.mark.parametrize(("command", "check", "subject"), BROKEN, ids=[f"{b[1]}-{b[2]}" for b in BROKEN])
async def test_broken_invariants_are_found_and_repaired(
    registry: Stub, embedded: RedisServer, command: tuple[str, ...], check: str, subject: str
) -> None:
    await register(registry, a_worker(api_url="worker:9000"), AVERAGE)
    assert await found(registry) == []
    verb, key, *rest = command
    store = embedded.connect()
    await store.execute_command(verb, BASE + key, *rest)
    assert (check, subject, False) in await found(registry)
    assert (check, subject, True) in await found(registry, mend=True)
    await found(registry, mend=True)
    assert await found(registry) == []
    for key in ("workers:w", "node_types:average:workers"):
        assert await store.pttl(BASE + key) != -1, f"{key} would stay for ever"
    await embedded.close_clients()


async def test_what_cannot_be_read_is_reported_and_the_rest_mended(registry: Stub, embedded: RedisServer) -> None:
    await register(registry, a_worker(), AVERAGE)
    admin = embedded.connect()
    await admin.execute_command("HSET", BASE + "workers:w", "supported_nodes", "none")
    await admin.execute_command("ZADD", BASE + "alive", 1e15, "gone")
    assert sorted(await found(registry, mend=True)) == [
        ("index-without-record", "alive gone", True),
        ("unreadable", "alive w", False),
        ("unreadable", "node_types average", False),
    ]
    await embedded.close_clients()


@pytest.mark.parametrize("key", OF_ANOTHER_TYPE)
async def test_key_of_another_type_gives_way_to_what_workers_report(
    registry: Stub, embedded: RedisServer, key: str
) -> None:
    workers = [a_worker("v", node_types=["average"]), a_worker("w", node_types=["average"], api_url="worker:9000")]

    async def beat() -> None:
        for worker in workers:
            if (await registry.Heartbeat(pb2.HeartbeatRequest(worker=worker))).register_again:
                await register(registry, worker, AVERAGE)

    await beat()
    await embedded.connect().set(BASE + key, "not what it was")
    with capture_logs() as logs:
        await registry.ListWorkers(pb2.ListWorkersRequest())
        await registry.ListNodeTypes(pb2.ListNodeTypesRequest())
        await beat()
    assert [(line["event"], line["what"]) for line in logs] == [("record_unreadable", BASE + key)]
    assert [each.worker_id for each in (await registry.ListWorkers(pb2.ListWorkersRequest())).workers] == ["v", "w"]
    available = await registry.GetAvailableWorkers(pb2.GetAvailableWorkersRequest(node_type="average"))
    assert [each.worker_id for each in available.workers] == ["v", "w"]
    await found(registry, mend=True)
    await beat()
    declared = (await registry.GetNodeType(pb2.GetNodeTypeRequest(type="average"))).node_type
    assert list(declared.worker_ids) == ["v", "w"]
    assert await found(registry) == []
    await embedded.close_clients()
