"""Tells other services what a flow's record says, and finishes deletions; repeated until confirmed."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from tradewind.scheduler.domain.event_schedule import FLOW_FINISHED
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.ports.due_sets import Outbox
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.ports.peers import NodeTasks, PeerUnavailable, StaleSchedule, Triggers
from tradewind.scheduler.ports.waking import WakeOwner, Work
from tradewind.scheduler.use_cases.told_triggers import ToldTriggers
from tradewind.server.clock import Clock

RETRY_MS = 1_000
_EPOCHS_TRIED = 3
_NOTIFY_WITHIN_MS = 24 * 3_600_000
"""For so long the node task manager knows a notification that it gets again."""

_log = structlog.get_logger(__name__)


class SettleOutbox:
    """Goes by the current record, not by the change that caused the entry: so the latest change wins by itself.

    `forget` are called with the id of each flow that has been removed, `on_ends_listener` when somebody begins to
    listen to ends of cycles.
    """

    def __init__(
        self,
        flows: FlowRecords,
        outbox: Outbox,
        triggers: Triggers,
        node_tasks: NodeTasks,
        forget: Sequence[Callable[[str], None]],
        wake: WakeOwner,
        on_ends_listener: Callable[[], None],
        told: ToldTriggers,
        clock: Clock,
    ) -> None:
        self._flows = flows
        self._outbox = outbox
        self._triggers = triggers
        self._node_tasks = node_tasks
        self._forget = forget
        self._wake = wake
        self._on_ends_listener = on_ends_listener
        self._told = told
        self._clock = clock

    async def __call__(self, flow_id: str) -> bool:
        """Bring the trigger service in line with the record; return whether the flow's entry is settled.

        The user of a flow that was stopped, or paused itself, is notified. A flow that is being deleted is removed at
        the node task manager and then here. Raises PeerUnavailable when a service is away, and errors of the store.
        """
        for _ in range(_EPOCHS_TRIED):
            (flow,) = await self._flows.find([flow_id])
            if flow is None:
                return await self._outbox.settle(flow_id, 0)
            try:
                await self._update_trigger(flow)
            except StaleSchedule:
                # The store has lost the epoch that the trigger service remembers.
                await self._flows.raise_schedule_epoch(flow_id)
                continue
            if flow.status is FlowStatus.DELETING:
                await self._delete(flow)
                return True
            await self._notify(flow)
            if await self._outbox.settle(flow_id, flow.schedule_epoch):
                return True
        return False

    async def attempt(self, flow_id: str) -> bool:
        """Do the same, but leave work that cannot be done now to the loop that repeats it, and wake that loop."""
        settled = False
        try:
            settled = await self(flow_id)
        except PeerUnavailable as error:
            _log.warning("outbox_postponed", flow_id=flow_id, error=error.detail)
        finally:
            if not settled:
                self._wake(Work.OUTBOX, flow_id, RETRY_MS)
        return settled

    async def _update_trigger(self, flow: FlowRecord) -> None:
        if not flow.has_trigger:
            await self._triggers.remove(flow.flow_id, flow.schedule_epoch)
            self._told.note(flow.flow_id, flow.schedule_epoch)
            return
        await self._triggers.save(
            flow.flow_id,
            user_id=flow.user_id,
            schedule=flow.schedule,
            first_ms=flow.anchor_ms,
            schedule_epoch=flow.schedule_epoch,
        )
        self._told.note(flow.flow_id, flow.schedule_epoch)
        if flow.schedule.on and flow.schedule.on.event_name == FLOW_FINISHED:
            self._on_ends_listener()

    async def _notify(self, flow: FlowRecord) -> None:
        """Notify the user that a flow was stopped, or paused itself, unless that was more than a day ago.

        A flow that has stood still for longer comes here as well, for instance when somebody stops it once more.
        """
        recent_ms = self._clock.now_ms() - _NOTIFY_WITHIN_MS
        if flow.status is FlowStatus.STOPPED and flow.stop is not None and flow.stop.at_ms > recent_ms:
            await self._node_tasks.notify_stopped(flow.flow_id, flow.user_id, flow.stop)
        pause = flow.pause if flow.status is FlowStatus.PAUSED else None
        if pause is not None and pause.failures and pause.at_ms > recent_ms:
            await self._node_tasks.notify_paused(flow.flow_id, flow.user_id, pause)

    async def _delete(self, flow: FlowRecord) -> None:
        while not await self._node_tasks.purge(flow.flow_id, flow.user_id, flow.schedule_epoch):
            pass
        # There, runs that begin in the same millisecond, of a later flow of the name, would be refused as well.
        await asyncio.sleep(0.001)
        while not await self._flows.remove_step(flow.flow_id):
            pass
        for forget in self._forget:
            forget(flow.flow_id)
        _log.info("flow_deleted", flow_id=flow.flow_id)
