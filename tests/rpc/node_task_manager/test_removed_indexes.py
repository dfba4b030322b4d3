"""An index of another type is removed by the script that needs it, named once, and put back soon by the doctor."""

import pytest
from structlog.testing import capture_logs

from tests.rpc.node_task_manager.conftest import RawWorker, Start, plan
from tradewind.server import doctor
from tradewind.server.redis.client import Client

BASE = "trading_flow:{s0}:"
QUEUE = f"{BASE}ready:noop:default"


async def test_lost_queue_is_named_once_and_put_back_soon(
    start: Start, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "AFTER_LOSS_S", 0.0)
    ntm = await start(doctor_seconds=3600)
    await ntm.submit(plan(nodes="a"))
    await admin.execute_command("DEL", QUEUE)
    await admin.execute_command("SET", QUEUE, "broken")
    with capture_logs() as logs:
        await ntm.submit(plan(nodes="b", digest="p2"), cycle=1, run_id="r1")
        worker = RawWorker(ntm.stub, "w1")
        await worker.open()
        try:
            given = await worker.assigned(2)
        finally:
            await worker.close()
    assert {each.node_id for each in given} == {"a", "b"}
    named = [(line["event"], line["what"]) for line in logs if line["event"] == "record_unreadable"]
    assert named == [("record_unreadable", QUEUE)]
