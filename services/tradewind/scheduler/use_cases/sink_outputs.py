"""Collects the outputs of the sink nodes of cycles."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.submission import ComponentEvent
from tradewind.scheduler.ports.peers import NodeTasks
from tradewind.scheduler.use_cases.definitions import PlannedRun
from tradewind.server.batching import Batcher

Outputs = Sequence[tuple[str, str]]
"""Emitted values, JSON text by handle."""

_AT_ONCE = 1000
_MAX_COLLECTED = 20_000


class SinkOutputs:
    """Small outputs come with events; the node task manager, which keeps all results, is asked for the rest.

    `is_awaited` says whether anybody waits for a run: outputs of other runs are not kept.
    """

    def __init__(self, node_tasks: NodeTasks, is_awaited: Callable[[RunName], bool]) -> None:
        self._node_tasks = node_tasks
        self._is_awaited = is_awaited
        self._collected: OrderedDict[tuple[str, str], Outputs] = OrderedDict()
        """By run id and node."""
        self._batcher: Batcher[tuple[str, str], Outputs] = Batcher(self._flush, _AT_ONCE)

    def collect(self, event: ComponentEvent) -> None:
        """Keep the outputs that came with an event for the caller that waits for them; the newest 20 000 are kept."""
        if event.sink and self._is_awaited(event.run):
            self._collected[event.run_id, event.sink] = event.outputs
            if len(self._collected) > _MAX_COLLECTED:
                self._collected.popitem(last=False)

    async def __call__(self, runs: Sequence[PlannedRun]) -> list[list[tuple[str, Outputs]]]:
        """Return, for each run, the sinks that emitted anything, in the order of the flow. Raises PeerUnavailable."""
        found: list[list[tuple[str, Outputs]]] = []
        pending: list[asyncio.Future[Outputs]] = []
        places: list[tuple[int, int]] = []
        for run in runs:
            name, facts = run.state.name, run.state.facts
            sinks: list[tuple[str, Outputs]] = []
            for node_id in run.planned.sinks:
                outputs = self._collected.pop((facts.run_id, node_id), None)
                if outputs is None:
                    outputs = ()
                    task_id = f"{name.flow_id}:{name.cycle}:{name.run}:{node_id}"
                    pending.append(self._batcher.submit((task_id, facts.user_id)))
                    places.append((len(found), len(sinks)))
                elif not outputs:
                    continue
                sinks.append((node_id, outputs))
            found.append(sinks)
        if not pending:
            return found
        for (at, place), outputs in zip(places, await asyncio.gather(*pending), strict=True):
            found[at][place] = (found[at][place][0], outputs)
        return [[(node_id, outputs) for node_id, outputs in sinks if outputs] for sinks in found]

    async def _flush(self, wanted: list[tuple[str, str]]) -> list[Outputs]:
        found: list[Outputs] = []
        while len(found) < len(wanted):
            found += await self._node_tasks.outputs(wanted[len(found) :])
        return found
