"""Metrics of the scheduler."""

from tests.unit.scheduler.memory_scheduler import MemoryScheduler
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.use_cases.begin_cycles import CycleRequest
from tradewind.server.metrics import REGISTRY, SWITCH
from tradewind.trigger.domain.schedule import Once, Schedule


def late_s() -> float:
    """Return the sum of the lateness of all scheduled cycles so far."""
    return REGISTRY.get_sample_value("tradewind_schedule_lateness_seconds_sum") or 0.0


async def test_jitter_does_not_count_as_lateness() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register(interval=None, schedule={"interval": "1h", "jitter": "30s"})
    scheduler.stores.data.flows["f"].status = FlowStatus.RUNNING
    now_ms = scheduler.clock.now_ms()
    SWITCH.turn(1)
    before_s, late_ms = late_s(), list[int]()
    try:
        for since_ms in (20_000, 31_000):
            planned_ms = now_ms - since_ms
            request = CycleRequest("f", CycleOrigin.SCHEDULE, due_ms=planned_ms, now_ms=now_ms, schedule_epoch=2**60)
            late_ms.append(max(0, now_ms - Schedule(Once(planned_ms), 30_000).delivery_ms("f", planned_ms)))
            (begun,) = await scheduler.begin([request])
            assert begun.answer.state is not None, begun.answer
    finally:
        SWITCH.turn(-1)
    assert round(late_s() - before_s, 3) == sum(late_ms) / 1000
    assert 1_000 < late_ms[1] < 31_000
