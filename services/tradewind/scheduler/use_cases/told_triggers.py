"""What this process has told the trigger service last: a store that loses that leaves flows without triggers."""

import asyncio
from collections import OrderedDict
from typing import NamedTuple

KEPT_S = 60.0
"""How long that is remembered: by then a store that lags behind has it, or its loss has been noticed."""


class _Told(NamedTuple):
    schedule_epoch: int
    at_s: float


class ToldTriggers:
    """Remembers the newest `most` flows whose triggers were saved or removed, each for KEPT_S."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._told: OrderedDict[str, _Told] = OrderedDict()

    def note(self, flow_id: str, schedule_epoch: int) -> None:
        """Remember that the trigger service has stored a flow's trigger, or its removal, under this epoch."""
        now_s = asyncio.get_running_loop().time()
        self._told[flow_id] = _Told(schedule_epoch, now_s)
        self._told.move_to_end(flow_id)
        while len(self._told) > self._most or next(iter(self._told.values())).at_s < now_s - KEPT_S:
            self._told.popitem(last=False)

    def latest(self) -> dict[str, int]:
        """Return the flows of the last KEPT_S, oldest first, each with its epoch."""
        since_s = asyncio.get_running_loop().time() - KEPT_S
        return {flow_id: told.schedule_epoch for flow_id, told in self._told.items() if told.at_s >= since_s}
