"""What cycles are chosen by, without reading them whole."""

import msgspec

from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.run_name import RunName


class CycleOutline(msgspec.Struct, frozen=True, gc=False):
    """What lists and jobs choose a run by: its status, its start (epoch ms), and who asked it to stop ("": nobody)."""

    name: RunName
    status: CycleStatus
    start_ms: int
    stop_by: str = ""
