"""Deletions that several callers carry out at once."""

from typing import Any

from tests.unit.scheduler.memory_scheduler import MemoryScheduler, wakes_nobody
from tradewind.scheduler.domain.flow_record import StatusChange
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.use_cases.settle_outbox import SettleOutbox


class ReplacingPeers:
    """Trigger service and node task manager; while they purge a flow, another replica deletes and registers it."""

    def __init__(self, scheduler: MemoryScheduler) -> None:
        self._scheduler = scheduler

    async def remove(self, flow_id: str, schedule_epoch: int) -> None: ...

    async def purge(self, flow_id: str, user_id: str) -> bool:
        assert await self._scheduler.stores.flows.remove_step(flow_id)
        await self._scheduler.register(flow_id)
        return True


async def test_deletion_ends_when_another_replica_has_deleted_the_flow_and_it_is_registered_again() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    flows, peers = scheduler.stores.flows, ReplacingPeers(scheduler)
    await flows.change_status(StatusChange("f", FlowStatus.DELETING, tuple(FlowStatus)))
    to_peers: Any = peers
    settle = SettleOutbox(flows, scheduler.stores.outbox, to_peers, to_peers, (), wakes_nobody, lambda: None)
    assert await settle("f")
    (flow,) = await flows.find(["f"])
    assert flow is not None
    assert flow.status is FlowStatus.REGISTERED
