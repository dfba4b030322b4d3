"""RunDoctor of the scheduler, over a real channel."""

import pytest

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.scheduler.v1 import doctor_pb2
from tradewind.scheduler.stores.keys import Keys
from tradewind.server import doctor
from tradewind.server.partitions import partition_of

KEYS = Keys()


async def run_doctor(scheduler: Client, *, mend: bool = False) -> list[tuple[str, str, bool]]:
    """Return what the doctor finds."""
    call = scheduler.stub.RunDoctor(doctor_pb2.RunDoctorRequest(mend=mend))
    answers = [answer async for answer in call]
    assert not answers[-1].findings
    return [(each.check, each.subject, each.mended) for answer in answers for each in answer.findings]


async def start_flow(scheduler: Client, peers: Peers) -> None:
    """Start flow f, which has a trigger then."""
    await scheduler.register("f")
    await scheduler.start("f")
    await until(lambda: "f" in peers.triggers.triggers, "the trigger is saved")


async def test_doctor_restores_a_lost_trigger(scheduler: Client, peers: Peers) -> None:
    await start_flow(scheduler, peers)
    assert await run_doctor(scheduler) == []
    peers.triggers.triggers.clear()
    assert await run_doctor(scheduler, mend=True) == [("running-without-trigger", "f", True)]
    await until(lambda: "f" in peers.triggers.triggers, "the trigger is saved again")


async def test_doctor_examines_the_rest_while_the_trigger_service_is_of_an_earlier_release(
    scheduler: Client, peers: Peers, embedded: RedisServer
) -> None:
    """Services are upgraded in any order."""
    await start_flow(scheduler, peers)
    peers.triggers.triggers.clear()
    peers.triggers.unimplemented.add("FindEpochs")
    await embedded.connect().execute_command("ZADD", KEYS.cycles("f"), 0, "rubbish")
    assert await run_doctor(scheduler) == [("index-without-record", "cycles f:rubbish", False)]
    peers.triggers.unimplemented.clear()
    assert ("running-without-trigger", "f", True) in await run_doctor(scheduler, mend=True)


async def test_doctor_replaces_a_trigger_of_a_later_version_than_the_record(scheduler: Client, peers: Peers) -> None:
    """As after a restore of the scheduler's store from an earlier moment than the trigger service's."""
    await start_flow(scheduler, peers)
    later = peers.triggers.epochs["f"] + 1
    peers.triggers.triggers["f"].epoch = peers.triggers.epochs["f"] = later
    assert await run_doctor(scheduler, mend=True) == [("running-without-trigger", "f", True)]
    await until(lambda: peers.triggers.triggers["f"].epoch > later, "the trigger is saved again")
    assert await run_doctor(scheduler) == []


async def test_trigger_lost_by_the_trigger_service_alone_is_restored_without_the_doctor(
    start: Start, peers: Peers
) -> None:
    scheduler = await start(doctor_seconds=0)
    for flow_id in ("f", "g"):
        await scheduler.register(flow_id)
        await scheduler.start(flow_id)
    await until(lambda: len(peers.triggers.triggers) == 2, "the triggers are saved")
    await until(lambda: peers.triggers.listens("f"), "the scheduler receives due triggers")
    del peers.triggers.triggers["f"]
    saves = peers.triggers.saves
    peers.triggers.end_streams()
    await until(lambda: "f" in peers.triggers.triggers, "the trigger is saved again")
    assert peers.triggers.saves == saves + 1


async def test_trigger_lost_by_the_trigger_service_of_a_scheduler_that_died_is_restored_soon(
    start: Start, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "AFTER_LOSS_S", 0.0)
    scheduler = await start(doctor_seconds=3600)
    await start_flow(scheduler, peers)
    await scheduler.server.stop()
    peers.triggers.triggers.clear()
    await start(doctor_seconds=3600)
    await until(lambda: "f" in peers.triggers.triggers, "the trigger is saved again")


async def test_trigger_lost_with_the_store_is_restored_soon_by_itself(
    start: Start, peers: Peers, embedded: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flow that is started while the store fails over may be running, and its trigger be lost."""
    monkeypatch.setattr(doctor, "AFTER_LOSS_S", 0.0)
    scheduler = await start(doctor_seconds=3600)
    await start_flow(scheduler, peers)
    peers.triggers.triggers.clear()
    await embedded.connect().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await until(lambda: "f" in peers.triggers.triggers, "the trigger is saved again")


async def test_doctor_resubmits_a_run_that_the_node_task_manager_lost(
    start: Start, peers: Peers, embedded: RedisServer
) -> None:
    scheduler = await start(scheduler_reconcile_seconds=3600, scheduler_check_in_seconds=0.1)
    peers.node_tasks.automatic = False
    await scheduler.register("f")
    cycle = await scheduler.run("f", wait=0)
    key = ("f", cycle.cycle, 0)
    await until(lambda: key in peers.node_tasks.runs, "the run was submitted")

    assert await run_doctor(scheduler) == []

    admin = embedded.connect()
    record = f"trading_flow:{{f{partition_of('f')}}}:flow:f:cycle:{cycle.cycle}:0"

    async def noted() -> bool:
        return await admin.execute_command("HGET", record, "submitted_at") is not None

    await until(noted, "the scheduler has recorded the submission")
    del peers.node_tasks.runs[key]

    async def found() -> bool:
        return await run_doctor(scheduler, mend=True) == [("run-unknown", "f:0:0", True)]

    await until(found, "the doctor finds the lost run")
    await until(lambda: key in peers.node_tasks.runs, "the run was submitted again")


async def test_background_doctor_mends_and_counts_findings(start: Start, embedded: RedisServer) -> None:
    scheduler = await start(doctor_seconds=0.1, doctor_records_per_second=100_000)
    admin = embedded.connect()
    flows = f"trading_flow:{{f{partition_of('gone')}}}:flows"
    await admin.execute_command("ZADD", flows, 0, "gone")

    async def is_gone() -> bool:
        return await admin.execute_command("ZSCORE", flows, "gone") is None

    await until(is_gone, "the entry is removed")

    async def counted() -> bool:
        call = scheduler.stub.RunDoctor(doctor_pb2.RunDoctorRequest())
        return [answer async for answer in call][-1].found_before["index-without-record"] == 1

    await until(counted, "the finding was counted")
    await embedded.close_clients()
