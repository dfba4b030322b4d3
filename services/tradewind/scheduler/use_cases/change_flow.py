"""Starts, pauses, resumes, stops and deletes flows."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import structlog

from tradewind.scheduler.domain.flow_record import FlowRecord, StatusAnswer, StatusChange, StatusOutcome
from tradewind.scheduler.domain.flow_status import FlowStatus, can_move
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.ports.peers import NodeTasks
from tradewind.scheduler.ports.waking import WakeOwner, Work
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.faults import flow_deleting, flow_not_paused, flow_not_running
from tradewind.scheduler.use_cases.load_portion import portions
from tradewind.scheduler.use_cases.planned_times import first_when_started, times_left_by_stop
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.scheduler.use_cases.settle_outbox import SettleOutbox
from tradewind.scheduler.use_cases.stop_orders import stop_all, stop_order
from tradewind.server.clock import Clock
from tradewind.server.faults import Unavailable

_STOP_AGAIN_MS = 1_000
_SETTLED_WITHIN_S = 3.0
"""How long a call waits for the trigger service; work that takes longer goes on in the background."""

_DELETE_AGAIN_S = 0.5
"""How long after a deletion that could not be finished its caller tries it again."""

_log = structlog.get_logger(__name__)


class ChangeFlow:
    """Changes the status of flows. Every change is on record before another service learns of it."""

    def __init__(
        self,
        read: ReadFlows,
        flows: FlowRecords,
        states: ChainStateRepository,
        node_tasks: NodeTasks,
        settle: SettleOutbox,
        background: Background,
        wake: WakeOwner,
        clock: Clock,
    ) -> None:
        self._read = read
        self._flows = flows
        self._states = states
        self._node_tasks = node_tasks
        self._settle = settle
        self._background = background
        self._wake = wake
        self._clock = clock
        self._deletions: dict[str, asyncio.Task[bool | None]] = {}
        self._draining = asyncio.Event()

    async def start(self, flow_id: str, start_at_ms: int = 0) -> FlowRecord:
        """Let cycles begin on time, the first at `start_at_ms` (0 for now) or when the schedule plans it after that.

        A running flow is left as it is, a paused flow is resumed. Raises NotFound; FailedPrecondition for a flow that
        is being deleted, or one that is not paused and whose schedule plans nothing more; InvalidInput for a first time
        of a flow that begins on events.
        """
        flow = await self._read.flow(flow_id)
        if flow.status is FlowStatus.RUNNING:
            return await self.settled(flow_id)
        first_ms, passed = first_when_started(flow, start_at_ms, self._clock.now_ms())
        change = StatusChange(
            flow_id,
            FlowStatus.RUNNING,
            _allowed_from(FlowStatus.RUNNING),
            first_ms or 0,
            passed=passed,
            over=first_ms is None,
        )
        await self._change(change)
        if flow.status is FlowStatus.PAUSED:
            # The flow's backfills go on.
            self._wake(Work.WAITING, flow_id, 0)
        return await self.settled(flow_id)

    async def pause(self, flow_id: str, by: str, note: str) -> FlowRecord:
        """Let no cycle begin until the flow is resumed; running cycles go on. A paused flow is left as it is.

        Raises NotFound, FailedPrecondition for a flow that is not running.
        """
        await self._change(
            StatusChange(flow_id, FlowStatus.PAUSED, _allowed_from(FlowStatus.PAUSED), by=by, reason=note)
        )
        return await self.settled(flow_id)

    async def resume(self, flow_id: str) -> FlowRecord:
        """Let cycles begin again, from the next planned time on; a running flow is left as it is.

        A flow that has nothing more planned completes when no cycle runs. Raises NotFound, FailedPrecondition for a
        flow that is not paused.
        """
        flow = await self._read.flow(flow_id)
        if flow.status not in (FlowStatus.PAUSED, FlowStatus.RUNNING):
            raise flow_not_paused(flow)
        return await self.start(flow_id)

    async def stop(self, flow_id: str, by: str, reason: str) -> FlowRecord:
        """Let no cycle begin, and stop running cycles, even those that RunFlow began, until the flow is started again.

        Raises NotFound, FailedPrecondition for a flow that is being deleted.
        """
        passed = times_left_by_stop(await self._read.flow(flow_id), self._clock.now_ms())
        answer = await self._change(
            StatusChange(
                flow_id, FlowStatus.STOPPED, _allowed_from(FlowStatus.STOPPED), by=by, reason=reason, passed=passed
            )
        )
        # The owner of the partition repeats the stops until the runs have ended; this only makes it quick.
        self._background.begin(self._stop_runs(answer.stopping), "stop of runs")
        self._wake(Work.RUNS, flow_id, _STOP_AGAIN_MS)
        return await self.settled(flow_id)

    async def delete(self, flow_id: str, wait_s: float) -> bool:
        """Stop a flow and remove all its data; return whether nothing is left after at most `wait_s`.

        Raises NotFound, and Unavailable when this server shuts down before that.
        """
        change = StatusChange(
            flow_id, FlowStatus.DELETING, _allowed_from(FlowStatus.DELETING), by="user", reason="the flow is deleted"
        )
        await self._change(change)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_s
        while not await self._try_deletion(flow_id, deadline_s - loop.time()):
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                return False
            if self._draining.is_set():
                raise Unavailable("DRAINING", "this server is shutting down; delete the flow again", 0.1)
            # Another service is away, perhaps only for a moment.
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_DELETE_AGAIN_S, left_s)):
                    await self._draining.wait()
        return True

    async def _try_deletion(self, flow_id: str, wait_s: float) -> bool:
        """Try to remove what a flow has left, and return whether nothing is left after at most `wait_s`."""
        deletion = self._deletions.get(flow_id)
        if deletion is None:
            deletion = self._background.task(self._settle.attempt(flow_id), "deletion of a flow")
            self._deletions[flow_id] = deletion
            deletion.add_done_callback(lambda _: self._deletions.pop(flow_id, None))
        done, _ = await asyncio.wait([deletion], timeout=max(0.0, wait_s))
        if done and not deletion.cancelled() and deletion.result():
            return True
        return await self._flows.find([flow_id]) == [None]

    def drain(self) -> None:
        """End the waits of callers whose deletions another service keeps from going on."""
        self._draining.set()

    async def revised(self, flow_id: str) -> FlowRecord:
        """Bring a running flow in line with its new definition and return it; planned times that wait may begin now."""
        self._wake(Work.WAITING, flow_id, 0)
        return await self.settled(flow_id)

    async def settled(self, flow_id: str) -> FlowRecord:
        """Bring the trigger service up to date, if it answers in time, and return the flow as it is then."""
        settling = self._background.task(self._settle.attempt(flow_id), "settling of a flow's trigger")
        await asyncio.wait([settling], timeout=_SETTLED_WITHIN_S)
        return await self._read.flow(flow_id)

    async def _change(self, change: StatusChange) -> StatusAnswer:
        answer = await self._flows.change_status(change)
        if answer.outcome is StatusOutcome.NOT_FOUND:
            raise await self._read.not_found(change.flow_id)
        if answer.outcome is StatusOutcome.REFUSED:
            if answer.found in (None, FlowStatus.DELETING):
                raise flow_deleting(change.flow_id)
            raise flow_not_running(change.flow_id, answer.found)
        if answer.outcome is StatusOutcome.CHANGED:
            _log.info("flow_status", flow_id=change.flow_id, status=change.status.value)
        return answer

    async def _stop_runs(self, runs: Sequence[RunName]) -> None:
        async for loaded in portions(self._states, runs):
            orders = [stop_order(state) for state in loaded.values() if state is not None and state.stop is not None]
            await stop_all(self._node_tasks, orders)


def _allowed_from(status: FlowStatus) -> tuple[FlowStatus, ...]:
    return tuple(current for current in FlowStatus if can_move(current, status))
