"""Cycles, each one execution of a flow, and everything that is known about one."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.scheduler.v1 import cycle_pb2
from tradewind.client import json_text
from tradewind.client.flows import FlowStatus
from tradewind.client.logs import LogLine
from tradewind.client.node_tasks import NodeError, NodeTaskRecord, NodeTaskStatus, StatusCounts, counts_from
from tradewind.client.reruns import Rerun, StopRecord, rerun_from, stop_from
from tradewind.client.sub_flows import ParentNode, parent_from
from tradewind.client.wire import Members, moment


class CycleStatus(StrEnum):
    """The status of a cycle; all but running are final."""

    RUNNING = "running"
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class CycleOrigin(StrEnum):
    """What made a cycle begin."""

    SCHEDULE = "schedule"
    RUN_FLOW = "run_flow"
    BACKFILL = "backfill"
    SUB_FLOW = "sub_flow"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CycleRecord:
    """A cycle on record. `counts` are its ended nodes by status, out of `node_count` in all."""

    flow_id: str
    cycle: int
    run: int
    run_id: str
    status: CycleStatus
    reason: str
    planned_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    revision: int
    origin: CycleOrigin
    inputs_json: str
    counts: StatusCounts
    node_count: int
    version: int
    trace_id: str
    rerun: Rerun | None = None
    """What a rerun keeps and who asked for it; None for the first run of a cycle."""
    stop: StopRecord | None = None
    """Who asked it to stop, why and when; None if nobody did."""
    phase: str = ""
    """For a flow with nodes for its outcome: main, on_failure, finally or over; else empty."""
    error_code: str = ""
    result_json: str = ""
    backfill_id: int = 0
    parent: ParentNode | None = None
    """The node of type `flow` that it runs for; None for other cycles."""

    @property
    def ended(self) -> bool:
        """Whether its status is final."""
        return self.status not in (CycleStatus.RUNNING, CycleStatus.UNKNOWN)

    @property
    def succeeded(self) -> bool:
        """Whether it has completed, with no node failed or terminated."""
        return self.status is CycleStatus.COMPLETED

    @property
    def seconds(self) -> float | None:
        """How long it took; None while it is running."""
        if self.start_time is None or self.end_time is None:
            return None
        return (self.end_time - self.start_time).total_seconds()

    @property
    def inputs(self) -> Any:
        """The inputs it was run with; None for none."""
        return json_text.decode(self.inputs_json)

    @property
    def given(self) -> Any:
        """The result that a node set for the cycle (`ctx.set_result`); None for none."""
        return json_text.decode(self.result_json)


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """A node that failed or was terminated, and why."""

    node_id: str
    node_type: str
    status: NodeTaskStatus
    reason: str
    error: NodeError | None

    def __str__(self) -> str:
        cause = str(self.error) if self.error is not None else self.reason
        text = f"{self.node_id} ({self.node_type}) {self.status}" + (f": {cause}" if cause else "")
        return text.replace("\n", "\n    ")


@dataclass(frozen=True, slots=True)
class CycleStatistics:
    """How many nodes of a cycle have each status; `error_nodes` are the failed ones."""

    total_nodes: int
    running_nodes: int
    completed_nodes: int
    error_nodes: int
    registered_nodes: int
    pending_nodes: int
    terminated_nodes: int
    skipped_nodes: int
    suspended_nodes: int = 0

    @property
    def waiting(self) -> bool:
        """Whether no node can proceed by itself: all that could are suspended until a signal, an answer or a time."""
        return self.suspended_nodes > 0 and not (self.running_nodes or self.pending_nodes)


class SignalStatus(StrEnum):
    """Whether an edge has its value: its source is undecided (waiting), has emitted it (live), or will not (dead)."""

    WAITING = "waiting"
    LIVE = "live"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Signal:
    """What passed along one edge."""

    source: str
    source_handle: str
    target: str
    target_handle: str
    status: SignalStatus


@dataclass(frozen=True, slots=True)
class CycleDescription:
    """Everything about a cycle: its nodes in the order of the flow, the edges between them, its newest log lines."""

    cycle: CycleRecord
    flow_status: FlowStatus
    nodes: tuple[NodeTaskRecord, ...]
    signals: tuple[Signal, ...]
    logs: tuple[LogLine, ...]
    statistics: CycleStatistics

    def node(self, node_id: str) -> NodeTaskRecord | None:
        """Return one node, or None if the cycle has no such node."""
        return next((node for node in self.nodes if node.node_id == node_id), None)

    @property
    def gone(self) -> str:
        """A sentence saying that the records of its nodes have passed their retention; empty while they have not."""
        counts = self.cycle.counts
        if self.nodes or not counts.completed + counts.failed + counts.terminated:
            return ""
        return (
            f"the node tasks of cycle {self.cycle.cycle} of {self.cycle.flow_id} are no longer on record; "
            "keep_cycles and keep_for of the flow set how long they are kept"
        )

    @property
    def sinks(self) -> tuple[NodeTaskRecord, ...]:
        """The nodes that no edge leaves; what they emit is the result of the flow."""
        sources = {signal.source for signal in self.signals}
        return tuple(node for node in self.nodes if node.node_id not in sources)

    @property
    def failures(self) -> tuple[NodeFailure, ...]:
        """The nodes that failed or were terminated."""
        failed = (NodeTaskStatus.FAILED, NodeTaskStatus.TERMINATED)
        return tuple(
            NodeFailure(node.node_id, node.node_type, node.status, node.reason, node.error)
            for node in self.nodes
            if node.status in failed
        )


_STATUSES = Members(cycle_pb2.CycleStatus, CycleStatus)
_PHASES = Members(cycle_pb2.CyclePhase, str)
_ORIGINS = Members(cycle_pb2.CycleOrigin, CycleOrigin)
_SIGNALS = Members(node_task_pb2.SignalStatus, SignalStatus)


def cycle_from(message: cycle_pb2.Cycle) -> CycleRecord:
    """Read a cycle."""
    return CycleRecord(
        flow_id=message.flow_id,
        cycle=message.cycle,
        run=message.run,
        run_id=message.run_id,
        status=_STATUSES[message.status],
        reason=message.reason,
        planned_time=moment(message, "planned_time"),
        start_time=moment(message, "start_time"),
        end_time=moment(message, "end_time"),
        revision=message.revision,
        origin=_ORIGINS[message.origin],
        inputs_json=message.inputs_json,
        counts=counts_from(message.counts),
        node_count=message.node_count,
        version=message.version,
        trace_id=message.trace_id,
        rerun=rerun_from(message),
        stop=stop_from(message),
        phase=_PHASES.get(message.phase, ""),
        error_code=message.error_code,
        result_json=message.result_json,
        backfill_id=message.backfill_id,
        parent=parent_from(message),
    )


def statistics_from(message: cycle_pb2.CycleStatistics) -> CycleStatistics:
    """Read statistics."""
    return CycleStatistics(
        total_nodes=message.total_nodes,
        running_nodes=message.running_nodes,
        completed_nodes=message.completed_nodes,
        error_nodes=message.error_nodes,
        registered_nodes=message.registered_nodes,
        pending_nodes=message.pending_nodes,
        terminated_nodes=message.terminated_nodes,
        skipped_nodes=message.skipped_nodes,
        suspended_nodes=message.suspended_nodes,
    )


def signals_from(messages: Iterable[node_task_pb2.Signal]) -> tuple[Signal, ...]:
    """Read signals."""
    return tuple(
        Signal(each.source, each.source_handle, each.target, each.target_handle, _SIGNALS[each.status])
        for each in messages
    )
