"""Removes the oldest cycles of a flow, in memory."""

import sys
from itertools import takewhile

from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.stores.memory.data import Data, Flow
from tradewind.server.partitions import partition_of


def trim(data: Data, flow: Flow, keep: int, ended_until: int, least: int = 1, most: int = sys.maxsize) -> int:
    """Remove the oldest ended runs beyond the newest `keep` cycles, once there are `least` of them; return how many.

    At most `most` are examined, up to the first cycle with a run that ended after `ended_until`. The runs of a cycle go
    together, unless there are more than `most`. Runs stay while their end has still to be returned, and while a later
    run of their cycle is open.
    """
    ended = [name for name in sorted(flow.runs) if name not in flow.open]
    excess = ended[: max(0, len(ended) - keep)]
    if len(excess) < least:
        return 0

    def is_removable(name: RunName) -> bool:
        return name.cycle <= flow.last_cycle - keep and flow.runs[name].state.end_ms <= ended_until

    returning = {end.run for end in data.returns.get(partition_of(flow.flow_id), ())}
    running = {name.cycle for name in flow.open}
    settled = list(takewhile(is_removable, excess[:most]))
    divided = ended[len(settled)].cycle if len(settled) < len(ended) else None
    whole = [name for name in settled if name.cycle != divided] or (settled if len(settled) == most else [])
    removed = [name for name in whole if name not in returning and name.cycle not in running]
    for name in removed:
        data.remove_run(flow, name)
    return len(removed)
