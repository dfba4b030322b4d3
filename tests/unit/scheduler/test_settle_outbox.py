"""Deletions that several callers carry out at once, and who is notified of flows that stand still."""

from typing import Any

from tests.unit.scheduler.memory_scheduler import MemoryScheduler, wakes_nobody
from tradewind.scheduler.domain.flow_record import FlowStop, StatusChange
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.use_cases.settle_outbox import SettleOutbox
from tradewind.scheduler.use_cases.told_triggers import ToldTriggers


class ReplacingPeers:
    """Trigger service and node task manager; while they purge a flow, another replica deletes and registers it."""

    def __init__(self, scheduler: MemoryScheduler) -> None:
        self._scheduler = scheduler
        self.purged: list[tuple[str, int]] = []

    async def remove(self, flow_id: str, schedule_epoch: int) -> None: ...

    async def purge(self, flow_id: str, user_id: str, schedule_epoch: int) -> bool:
        self.purged.append((flow_id, schedule_epoch))
        assert await self._scheduler.stores.flows.remove_step(flow_id)
        await self._scheduler.register(flow_id)
        return True


async def test_deletion_ends_when_another_replica_has_deleted_the_flow_and_it_is_registered_again() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    flows, peers = scheduler.stores.flows, ReplacingPeers(scheduler)
    await flows.change_status(StatusChange("f", FlowStatus.DELETING, tuple(FlowStatus)))
    (deleted,) = await flows.find(["f"])
    assert deleted is not None
    to_peers: Any = peers
    outbox, told = scheduler.stores.outbox, ToldTriggers()
    settle = SettleOutbox(flows, outbox, to_peers, to_peers, (), wakes_nobody, lambda: None, told, scheduler.clock)
    assert await settle("f")
    (flow,) = await flows.find(["f"])
    assert flow is not None
    assert flow.status is FlowStatus.REGISTERED
    assert peers.purged == [("f", deleted.schedule_epoch)]
    assert flow.schedule_epoch > deleted.schedule_epoch, "a purge that comes late can be told from that of the new flow"


class NotifyingPeers:
    """Trigger service and node task manager, which notes what users are notified of."""

    def __init__(self) -> None:
        self.stops: list[FlowStop] = []

    async def remove(self, flow_id: str, schedule_epoch: int) -> None: ...

    async def notify_stopped(self, flow_id: str, user_id: str, stop: FlowStop) -> None:
        self.stops.append(stop)


async def test_nobody_is_notified_a_day_late_that_a_flow_was_stopped() -> None:
    """By then the node task manager could not tell that the user has been notified before."""
    scheduler = MemoryScheduler()
    await scheduler.register()
    flows = scheduler.stores.flows
    peers: Any = NotifyingPeers()
    settle = SettleOutbox(
        flows, scheduler.stores.outbox, peers, peers, (), wakes_nobody, lambda: None, ToldTriggers(), scheduler.clock
    )
    await flows.change_status(StatusChange("f", FlowStatus.STOPPED, tuple(FlowStatus), by="ann", reason="enough"))
    stop = FlowStop("ann", "enough", scheduler.clock.now_ms())
    assert await settle("f")
    assert peers.stops == [stop]
    scheduler.clock.advance(24 * 3_600_000)
    await settle("f")
    assert peers.stops == [stop]
