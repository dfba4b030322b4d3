"""What a flow keeps: the node task manager is told with each run, and the flow's own records follow."""

from google.protobuf.duration_pb2 import Duration

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2

HOUR_MS = 3_600_000


async def cycles(scheduler: Client, flow_id: str = "f") -> list[int]:
    """Return the numbers of the cycles on record."""
    response = await scheduler.stub.ListCycles(pb2.ListCyclesRequest(flow_id=flow_id))
    return sorted(cycle.cycle for cycle in response.cycles)


async def test_submission_carries_the_retention_of_its_flow(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("kept", keep_cycles=7, keep_for="2h")
    await scheduler.register("usual")
    for flow_id in ("kept", "usual"):
        await scheduler.run(flow_id)
    found = {run.flow_id: run for request in peers.node_tasks.requests for run in request.runs}
    assert (found["kept"].keep_cycles, found["kept"].keep_for) == (7, Duration(seconds=7200))
    # The default is not sent.
    assert not found["usual"].keep_cycles
    assert not found["usual"].HasField("keep_for")


async def test_ended_cycle_expires_after_keep_for(scheduler: Client, embedded: RedisServer) -> None:
    await scheduler.register("kept", keep_for="2h")
    await scheduler.register("usual")
    admin = embedded.connect()
    for flow_id, expected in (("kept", 2 * HOUR_MS), ("usual", 7 * 24 * HOUR_MS)):
        await scheduler.run(flow_id)
        (key,) = [key for key in await embedded.keys() if key.endswith(f":flow:{flow_id}:cycle:0:0")]
        assert expected - 60_000 < await admin.pttl(key) <= expected, key


async def test_lowering_keep_cycles_removes_old_cycles_without_a_new_cycle(start: Start, peers: Peers) -> None:
    scheduler = await start(scheduler_tidy_seconds=0.1, scheduler_settle_seconds=0)
    await until(lambda: peers.triggers.listens("f"), "the scheduler listens")
    await scheduler.register("f", keep_cycles=9)
    for _ in range(5):
        await scheduler.run("f")
    assert await cycles(scheduler) == [0, 1, 2, 3, 4]
    await scheduler.register("f", keep_cycles=2)

    async def tidied() -> bool:
        return await cycles(scheduler) == [3, 4]

    await until(tidied, "the flow has lost its older cycles")


async def test_index_of_a_flow_drops_expired_cycles(start: Start, peers: Peers, embedded: RedisServer) -> None:
    scheduler = await start(scheduler_tidy_seconds=0.1)
    await until(lambda: peers.triggers.listens("f"), "the scheduler listens")
    await scheduler.register("f")
    for _ in range(3):
        await scheduler.run("f")
    admin = embedded.connect()
    (index,) = [key for key in await embedded.keys() if key.endswith(":flow:f:cycles")]
    for cycle in (0, 1):
        await admin.delete(index.replace(":cycles", f":cycle:{cycle}:0"))

    async def forgotten() -> bool:
        return bool(await admin.zrange(index, 0, -1) == [b"2:0"])

    await until(forgotten, "the index has lost what is not on record")
