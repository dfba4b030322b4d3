"""Does one kind of work in the partitions that this replica owns."""

from collections.abc import Awaitable, Callable

import structlog

from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.ports.waking import Work
from tradewind.scheduler.use_cases.wake_owners import WakeOwners
from tradewind.server.incidents import IncidentLog

_log = structlog.get_logger(__name__)


class OwnedWork:
    """Does work of a `kind` when somebody wakes its owner or the owned partitions change, and every `poll_s` anyway.

    `work` returns in how many seconds there is more to do, infinity if it does not know. When it fails, the work is
    repeated after `retry_s`; `failure` is logged once, however often that happens in a row.
    """

    def __init__(
        self,
        failure: str,
        work: Callable[[Epochs], Awaitable[float]],
        wake: WakeOwners,
        kind: Work,
        poll_s: float,
        retry_s: float = 1.0,
    ) -> None:
        self._failing = IncidentLog(_log, failure, "work_recovered")
        self._kind = kind
        self._work = work
        self._ownership = wake.ownership
        self._alarm = wake.alarms[kind]
        self._poll_s = poll_s
        self._retry_s = retry_s
        self._ownership.on_change(lambda: self._alarm.ring_in(0))

    async def run(self) -> None:
        """Run forever."""
        while True:
            wait_s = self._retry_s
            try:
                wait_s = await self._work(self._ownership.epochs)
            except PeerUnavailable as error:
                self._failing.note(self._kind.value, error=error.detail)
            except Exception as error:
                self._failing.note(self._kind.value, error=error)
            await self._alarm.rest(self._poll_s, wait_s)
