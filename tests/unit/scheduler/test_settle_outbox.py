"""Deletions that several callers carry out at once."""

from typing import Any

from tests.unit.scheduler.memory_scheduler import MemoryScheduler, wakes_nobody
from tradewind.scheduler.domain.flow_record import StatusChange
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
    settle = SettleOutbox(flows, outbox, to_peers, to_peers, (), wakes_nobody, lambda: None, told)
    assert await settle("f")
    (flow,) = await flows.find(["f"])
    assert flow is not None
    assert flow.status is FlowStatus.REGISTERED
    assert peers.purged == [("f", deleted.schedule_epoch)]
    assert flow.schedule_epoch > deleted.schedule_epoch, "a purge that comes late can be told from that of the new flow"
