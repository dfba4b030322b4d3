"""Settles the outbox."""

import math

from tradewind.scheduler.loops.owned_work import OwnedWork
from tradewind.scheduler.ports.due_sets import Outbox
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.ports.waking import Work
from tradewind.scheduler.use_cases.settle_outbox import RETRY_MS, SettleOutbox
from tradewind.scheduler.use_cases.wake_owners import WakeOwners

_AT_ONCE = 50


def outbox_loop(outbox: Outbox, settle: SettleOutbox, wake: WakeOwners, poll_s: float) -> OwnedWork:
    """Return the loop that repeats unconfirmed messages to the trigger service.

    It is a safety net: the calls that change flows update the trigger service at once.
    """

    async def work(epochs: Epochs) -> float:
        checks = await outbox.check(list(epochs), _AT_ONCE)
        left = False
        for check in checks.values():
            left = left or check.next_ms is not None
            for flow_id in check.due:
                await outbox.postpone(flow_id, RETRY_MS)
                left = not await settle.attempt(flow_id) or left
        return RETRY_MS / 1000 if left else math.inf

    return OwnedWork("outbox_not_settled", work, wake, Work.OUTBOX, poll_s)
