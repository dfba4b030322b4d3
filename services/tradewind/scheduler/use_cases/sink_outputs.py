"""Collects the outputs of the sink nodes of cycles."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.submission import ComponentEvent
from tradewind.scheduler.ports.peers import NodeTasks
from tradewind.scheduler.use_cases.definitions import PlannedRun
from tradewind.server.batching import Batcher
from tradewind.server.sizes import size_of

Outputs = Sequence[tuple[str, str]]
"""Emitted values, JSON text by handle."""

LARGEST_OUTPUTS = 2 * 1024 * 1024
"""The most bytes that a run is answered with."""
_AT_ONCE = 1000
_MAX_COLLECTED = 20_000


class _Wanted(NamedTuple):
    """Node tasks of a run, whose outputs are to be read."""

    task_ids: Sequence[str]
    user_id: str


class SinkOutputs:
    """Small outputs come with events; the node task manager, which keeps all results, is asked for the rest.

    `is_awaited` says whether anybody waits for a run: outputs of other runs are not kept.
    """

    def __init__(self, node_tasks: NodeTasks, is_awaited: Callable[[RunName], bool]) -> None:
        self._node_tasks = node_tasks
        self._is_awaited = is_awaited
        self._collected: OrderedDict[tuple[str, str], Outputs] = OrderedDict()
        """By run id and node."""
        self._batcher = Batcher(self._flush, weigh=lambda run: len(run.task_ids), max_weight=_AT_ONCE)

    def collect(self, event: ComponentEvent) -> None:
        """Keep the outputs that came with an event for the caller that waits for them; the newest 20 000 are kept."""
        if event.sink and self._is_awaited(event.run):
            self._collected[event.run_id, event.sink] = event.outputs
            if len(self._collected) > _MAX_COLLECTED:
                self._collected.popitem(last=False)

    async def __call__(self, runs: Sequence[PlannedRun]) -> list[list[tuple[str, Outputs]]]:
        """Return, for each run, the sinks that emitted anything, in the order of the flow.

        Of a run that emitted more than LARGEST_OUTPUTS bytes, at least so many are returned. Raises PeerUnavailable.
        """
        found: list[list[tuple[str, Outputs]]] = []
        pending: list[asyncio.Future[list[Outputs]]] = []
        places: list[tuple[int, list[int]]] = []
        for run in runs:
            name, facts = run.state.name, run.state.facts
            sinks: list[tuple[str, Outputs]] = []
            unknown: list[int] = []
            for node_id in run.planned.sinks:
                outputs = self._collected.pop((facts.run_id, node_id), None)
                if outputs is None:
                    unknown.append(len(sinks))
                elif not outputs:
                    continue
                sinks.append((node_id, outputs or ()))
            if unknown:
                ids = [f"{name.flow_id}:{name.cycle}:{name.run}:{sinks[place][0]}" for place in unknown]
                pending.append(self._batcher.submit(_Wanted(ids, facts.user_id)))
                places.append((len(found), unknown))
            found.append(sinks)
        if not pending:
            return found
        for (at, unknown), read in zip(places, await asyncio.gather(*pending), strict=True):
            for place, outputs in zip(unknown, read, strict=False):
                found[at][place] = (found[at][place][0], outputs)
        return [[(node_id, outputs) for node_id, outputs in sinks if outputs] for sinks in found]

    async def _flush(self, wanted: list[_Wanted]) -> list[list[Outputs]]:
        """Read the outputs of runs; leave out what follows when those of a run are too large to be answered with."""
        found: list[list[Outputs]] = [[] for _ in wanted]
        room = [LARGEST_OUTPUTS] * len(wanted)
        left = deque((at, task_id) for at, run in enumerate(wanted) for task_id in run.task_ids)
        while left:
            piece = list(islice(left, _AT_ONCE))
            for outputs in await self._node_tasks.outputs([(task_id, wanted[at].user_id) for at, task_id in piece]):
                at, _ = left.popleft()
                found[at].append(outputs)
                room[at] -= sum(size_of(value) for _, value in outputs)
            while left and room[left[0][0]] < 0:
                left.popleft()
        return found
