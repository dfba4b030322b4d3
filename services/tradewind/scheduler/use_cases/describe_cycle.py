"""Describes a cycle: its nodes, signals, log lines and statistics."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2 import ListNodeTasksResponse
from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTask, NodeTaskStatus
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.log_line import LogLine
from tradewind.scheduler.domain.node_counts import NodeCounts
from tradewind.scheduler.ports.peers import NodeTasks, PeerRefused
from tradewind.scheduler.use_cases.explain_waits import explain_waits
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.scheduler.use_cases.read_logs import ReadLogs
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.paging import MESSAGE_BYTES, NOT_OF_THIS_LIST

MAX_LINES = 1000

_FIELD_OF = {
    NodeTaskStatus.NODE_TASK_STATUS_REGISTERED: "registered",
    NodeTaskStatus.NODE_TASK_STATUS_PENDING: "pending",
    NodeTaskStatus.NODE_TASK_STATUS_RUNNING: "running",
    NodeTaskStatus.NODE_TASK_STATUS_SUSPENDED: "suspended",
    NodeTaskStatus.NODE_TASK_STATUS_COMPLETED: "completed",
    NodeTaskStatus.NODE_TASK_STATUS_FAILED: "failed",
    NodeTaskStatus.NODE_TASK_STATUS_TERMINATED: "terminated",
    NodeTaskStatus.NODE_TASK_STATUS_SKIPPED: "skipped",
}


@dataclass(frozen=True, slots=True)
class CycleDescription:
    """A page of a cycle's description; log lines and statistics come with the first page only."""

    state: ChainState
    flow: FlowRecord
    page: ListNodeTasksResponse
    lines: tuple[LogLine, ...] = ()
    statistics: NodeCounts | None = None


class DescribeCycle:
    """Combines the scheduler's records with the answers of the node task manager."""

    def __init__(self, read: ReadFlows, logs: ReadLogs, node_tasks: NodeTasks) -> None:
        self._read = read
        self._logs = logs
        self._node_tasks = node_tasks

    async def __call__(
        self,
        flow_id: str,
        cycle: int | None,
        run: int | None,
        *,
        outputs: bool,
        lines: bool,
        page_size: int,
        page_token: str,
    ) -> CycleDescription:
        """Return a page of a cycle's nodes; the first page also has its newest lines and its statistics.

        Raises NotFound, InvalidInput for a page token of another list, and PeerUnavailable when the node task manager
        is away.
        """
        state = await self._read.cycle(flow_id, cycle, run)
        flow = await self._read.flow(flow_id)
        try:
            page = await self._node_tasks.node_tasks(
                state, outputs=outputs, signals=True, page_size=page_size, page_token=page_token
            )
        except PeerRefused as refusal:
            if not page_token:
                raise
            # It is the only part of the request that comes from the caller as it is.
            raise InvalidInput([Violation("page_token", NOT_OF_THIS_LIST)]) from refusal
        if not is_terminal(state.status):
            explain_waits(page)
        if page_token:
            return CycleDescription(state, flow, page)
        newest: deque[LogLine] = deque()
        room = MESSAGE_BYTES
        if lines:
            async for line, _ in self._logs.of_cycle(state):
                newest.append(line)
                room -= len(line.text)
                while room < 0 or len(newest) > MAX_LINES:
                    room += len(newest.popleft().text)
        return CycleDescription(state, flow, page, tuple(newest), await self._statistics(state, page))

    async def _statistics(self, state: ChainState, page: ListNodeTasksResponse) -> NodeCounts:
        """Count all nodes by status: from the record once the cycle has ended, otherwise one by one."""
        if is_terminal(state.status) and state.all_finished:
            end = state.counts()
            return NodeCounts(
                completed=end.completed, failed=end.failed, terminated=end.terminated, skipped=end.skipped
            )
        counts = _count(page.node_tasks)
        while page.next_page_token:
            page = await self._node_tasks.node_tasks(state, page_token=page.next_page_token)
            counts += _count(page.node_tasks)
        # The rest are nodes that the node task manager does not know yet, or no longer knows.
        return counts + NodeCounts(registered=max(0, state.facts.node_count - counts.total))


def _count(node_tasks: Iterable[NodeTask]) -> NodeCounts:
    counts = Counter(_FIELD_OF.get(task.status, "registered") for task in node_tasks)
    return NodeCounts(**counts)
