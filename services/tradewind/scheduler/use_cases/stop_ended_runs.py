"""Stops what the node task manager still carries out of runs that have ended: its store may have lost their ends."""

from collections.abc import Sequence

import structlog

from tradewind.scheduler.domain.chain_state import ChainState, StopRequest
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.submission import OpenComponentEvent, StopOrder
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.ports.peers import NodeTasks, PeerRefused
from tradewind.scheduler.use_cases.load_portion import portions
from tradewind.scheduler.use_cases.stop_orders import stop_all
from tradewind.server.clock import Clock
from tradewind.server.faults import Unreadable

_PATIENCE_MS = 3600 * 1000
_REASON = "the cycle has ended; the store of node tasks has lost that"

_log = structlog.get_logger(__name__)


class StopEndedRuns:
    """Answers the question whether components that are open should be.

    What was stopped is stopped again at once. Other ended runs get an hour: workers report again what they have done,
    so most components end by themselves, with all their results. An hour also goes by before a run counts as ended that
    is not on record: the cycle of a planned time may yet begin again under the same name. A run whose record cannot be
    read goes on: somebody may put it right.
    """

    def __init__(self, states: ChainStateRepository, node_tasks: NodeTasks, clock: Clock) -> None:
        self._states = states
        self._node_tasks = node_tasks
        self._clock = clock

    async def __call__(self, events: Sequence[OpenComponentEvent]) -> None:
        """Stop the components whose runs have ended. Raises PeerUnavailable and errors of the store."""
        by_run: dict[RunName, list[OpenComponentEvent]] = {}
        for event in events:
            by_run.setdefault(event.run, []).append(event)
        orders: list[StopOrder] = []
        async for loaded in portions(self._states, list(by_run)):
            for run, state in loaded.items():
                for event in by_run[run]:
                    # Another run may have been given its name.
                    mine = state if state is not None and state.facts.run_id == event.run_id else None
                    if await self._is_over(event, mine):
                        orders.append(_order(event, mine))
        if not orders:
            return
        _log.info("ended_runs_stopped", components=len(orders))
        try:
            await stop_all(self._node_tasks, orders)
        except PeerRefused as error:
            # The node task manager asks again.
            _log.warning("ended_runs_not_stopped", components=len(orders), error=error)

    async def _is_over(self, event: OpenComponentEvent, state: ChainState | None) -> bool:
        long_ago_ms = self._clock.now_ms() - _PATIENCE_MS
        if state is None:
            return event.begun_ms <= long_ago_ms and await self._is_readable(event.run)
        return is_terminal(state.status) and (state.stop is not None or state.end_ms <= long_ago_ms)

    async def _is_readable(self, run: RunName) -> bool:
        """Say whether the record of a run can be read, or there is none."""
        try:
            await self._states.load(run)
        except Unreadable:
            return False
        return True


def _order(event: OpenComponentEvent, state: ChainState | None) -> StopOrder:
    stop = state.stop if state is not None and state.stop is not None else StopRequest("system", _REASON, 0)
    return StopOrder(event.run, event.run_id, event.user_id, stop.reason, stop.by, 0, event.component_id)
