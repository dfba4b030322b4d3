"""Node task managers whose clock is not the store's."""

import time
from collections.abc import Callable

import pytest

from tests.clocks import set_clock
from tests.rpc.node_task_manager.conftest import RawWorker, Start, plan
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2

HOURS = pytest.mark.parametrize("ahead_s", [7200.0, -7200.0])
SPARE_S = 60.0


@HOURS
async def test_assignments_carry_store_time(
    start: Start, worker: Callable[..., RawWorker], monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    clock = time.time
    before = clock()
    set_clock(monkeypatch, ahead_s)
    ntm = await start()
    w = worker(at=ntm, capacity=1)
    await w.open()
    await ntm.submit(plan(nodes="a b"))
    await w.assigned()
    (streamed,) = [response for response in w.responses if response.assignments]
    claimed = await ntm.stub.ClaimNodeTasks(pb2.ClaimNodeTasksRequest(worker_id="w2", node_types=["noop"]))

    for message in (streamed, claimed):
        sent_at = message.sent_at.ToMilliseconds() / 1000
        assert before - SPARE_S <= sent_at <= clock() + SPARE_S
        assert 300 - SPARE_S <= message.assignments[0].deadline.ToMilliseconds() / 1000 - sent_at <= 300 + SPARE_S


async def test_node_due_by_store_clock_begins_at_once(
    start: Start, worker: Callable[..., RawWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned_ms = time.time_ns() // 1_000_000 - 1000
    set_clock(monkeypatch, -30.0)
    ntm = await start()
    w = worker(at=ntm)
    await w.open()
    await ntm.submit(plan(nodes="a"), planned_time={"seconds": planned_ms // 1000})
    (given,) = await w.assigned()
    assert not given.HasField("start_in")
