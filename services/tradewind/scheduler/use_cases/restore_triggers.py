"""Tells the trigger service once more what its store has lost of the changes that it was told last."""

import asyncio
from collections.abc import Mapping
from itertools import islice

import structlog

from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.ports.due_sets import Outbox
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.ports.peers import StaleSchedule, Triggers
from tradewind.scheduler.ports.waking import WakeOwner, Work
from tradewind.scheduler.use_cases.told_triggers import ToldTriggers
from tradewind.server.incidents import IncidentLog

AT_ONCE = 20
PAUSE_S = 0.02
"""Between asking for so many triggers and for the next: however many flows have changed, at most 1000 a second."""
_RETRY_S = 1.0

_log = structlog.get_logger(__name__)


class RestoreTriggers:
    """Asks only for flows whose triggers have changed in the last minute, however many flows are running.

    What other replicas told the trigger service they know themselves, and what nobody knows any more the doctor finds.
    """

    def __init__(
        self, told: ToldTriggers, flows: FlowRecords, outbox: Outbox, triggers: Triggers, wake: WakeOwner
    ) -> None:
        self._told = told
        self._flows = flows
        self._outbox = outbox
        self._triggers = triggers
        self._wake = wake
        self._suspects: dict[str, int] = {}
        self._suspected = asyncio.Event()
        self._failing = IncidentLog(_log, "triggers_not_compared", "triggers_compared_again")

    def suspect(self) -> None:
        """Note that the trigger service may have lost what it was told last."""
        self._suspects |= self._told.latest()
        if self._suspects:
            self._suspected.set()

    async def run(self) -> None:
        """Look after each suspicion, forever."""
        while True:
            await self._suspected.wait()
            self._suspected.clear()
            suspects, self._suspects = self._suspects, {}
            chunk: dict[str, int] = {}
            try:
                while suspects:
                    chunk = dict(islice(suspects.items(), AT_ONCE))
                    for flow_id in chunk:
                        del suspects[flow_id]
                    await self._check(chunk)
                    await asyncio.sleep(PAUSE_S)
            except Exception as error:
                # Most likely the service, or a store, is still away. If the fault is a flow's, the others go first.
                self._suspects = suspects | chunk | self._suspects
                self._failing.note("latest changes", flows=len(self._suspects), error=error)
                self._suspected.set()
                await asyncio.sleep(_RETRY_S)

    async def _check(self, epochs: Mapping[str, int]) -> None:
        """Compare the triggers of some flows with the records; see to those that are missing, out of date, or too many.

        `epochs` are those under which the trigger service was told last.
        """
        flows = await self._flows.find(list(epochs))
        known = await self._triggers.epochs_of(list(epochs))
        lost: list[str] = []
        for (flow_id, told), flow in zip(epochs.items(), flows, strict=True):
            epoch = known.get(flow_id)
            if flow is None:
                if epoch is not None and epoch <= told:
                    await self._remove(flow_id, told)
                    lost.append(flow_id)
            elif _is_wrong(flow, epoch, told):
                await self._outbox.add(flow_id)
                self._wake(Work.OUTBOX, flow_id, 0)
                lost.append(flow_id)
        if lost:
            _log.warning("triggers_lost", flows=lost, hint="the trigger service is told again what its store had lost")

    async def _remove(self, flow_id: str, schedule_epoch: int) -> None:
        try:
            await self._triggers.remove(flow_id, schedule_epoch)
        except StaleSchedule:
            _log.debug("flow_registered_again", flow_id=flow_id)


def _is_wrong(flow: FlowRecord, epoch: int | None, told: int) -> bool:
    """Say whether this epoch of a flow's trigger, None without one, does not follow from its record.

    A trigger that has ended by itself stays known under the last epoch. One above `told` is that of a later change.
    """
    if epoch is None:
        return flow.has_trigger
    return epoch < flow.schedule_epoch or flow.schedule_epoch < epoch <= told
