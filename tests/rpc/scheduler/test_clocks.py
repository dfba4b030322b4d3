"""Schedulers whose clock is not the store's."""

import time

import pytest

from tests.clocks import set_clock
from tests.rpc.scheduler.conftest import Peers, Start
from tests.waiting import until
from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2


@pytest.mark.parametrize("ahead_s", [7200.0, -7200.0])
async def test_first_planned_time_follows_the_clock_of_the_store(
    start: Start, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    clock = time.time
    set_clock(monkeypatch, ahead_s)
    scheduler = await start()
    spec = flow_pb2.FlowSpec(nodes=[flow_pb2.NodeSpec(id="a", type="noop")])
    spec.schedule.cron = "*/30 * * * *"
    await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec))
    before = clock()
    flow = await scheduler.start()
    assert before - 60 <= flow.next_execution.seconds <= clock() + 1800 + 60


async def test_cycle_gets_its_whole_timeout_when_the_schedulers_clock_is_ahead(
    start: Start, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, 7200.0)
    peers.node_tasks.automatic = False
    scheduler = await start(scheduler_check_in_seconds=0.1, scheduler_reconcile_seconds=0.1)
    await scheduler.register(timeout="1h")
    await scheduler.run(wait=0)
    peers.node_tasks.runs.clear()
    await until(lambda: ("f", 0, 0) in peers.node_tasks.runs, "the scheduler has looked after the run, which was lost")
    await peers.node_tasks.finish(("f", 0, 0))
    assert (await scheduler.ended()).status == cycle_pb2.CYCLE_STATUS_COMPLETED


async def test_cycle_times_out_on_time_when_the_schedulers_clock_is_behind(
    start: Start, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, -7200.0)
    peers.node_tasks.automatic = False
    scheduler = await start()
    await scheduler.register(timeout="200ms")
    assert (await scheduler.run()).status == cycle_pb2.CYCLE_STATUS_TIMEOUT
