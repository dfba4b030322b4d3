"""Maps cycles, their statistics and log lines to messages."""

from tradewind.api.scheduler.v1 import cycle_pb2
from tradewind.scheduler.domain.chain_state import NO_NOTES, ChainState, CycleOrigin
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.handlers import Phase
from tradewind.scheduler.domain.log_line import LogLevel, LogLine, LogSource
from tradewind.scheduler.domain.node_counts import NodeCounts
from tradewind.server.timestamps import set_timestamp

CYCLE_STATUS = {
    CycleStatus.RUNNING: cycle_pb2.CYCLE_STATUS_RUNNING,
    CycleStatus.COMPLETED: cycle_pb2.CYCLE_STATUS_COMPLETED,
    CycleStatus.PARTIAL: cycle_pb2.CYCLE_STATUS_PARTIAL,
    CycleStatus.FAILED: cycle_pb2.CYCLE_STATUS_FAILED,
    CycleStatus.TIMEOUT: cycle_pb2.CYCLE_STATUS_TIMEOUT,
    CycleStatus.CANCELLED: cycle_pb2.CYCLE_STATUS_CANCELLED,
}
STATUS_OF_CYCLE = {number: status for status, number in CYCLE_STATUS.items()}
_ORIGIN = {
    CycleOrigin.SCHEDULE: cycle_pb2.CYCLE_ORIGIN_SCHEDULE,
    CycleOrigin.RUN_FLOW: cycle_pb2.CYCLE_ORIGIN_RUN_FLOW,
    CycleOrigin.BACKFILL: cycle_pb2.CYCLE_ORIGIN_BACKFILL,
    CycleOrigin.SUB_FLOW: cycle_pb2.CYCLE_ORIGIN_SUB_FLOW,
}
_LEVEL = {
    LogLevel.DEBUG: cycle_pb2.LOG_LEVEL_DEBUG,
    LogLevel.INFO: cycle_pb2.LOG_LEVEL_INFO,
    LogLevel.WARNING: cycle_pb2.LOG_LEVEL_WARNING,
    LogLevel.ERROR: cycle_pb2.LOG_LEVEL_ERROR,
    LogLevel.CRITICAL: cycle_pb2.LOG_LEVEL_CRITICAL,
}
_PHASE = {
    Phase.MAIN: cycle_pb2.CYCLE_PHASE_MAIN,
    Phase.ON_FAILURE: cycle_pb2.CYCLE_PHASE_ON_FAILURE,
    Phase.FINALLY: cycle_pb2.CYCLE_PHASE_FINALLY,
    Phase.OVER: cycle_pb2.CYCLE_PHASE_OVER,
    None: cycle_pb2.CYCLE_PHASE_UNSPECIFIED,
}
LEVEL_OF = {number: level for level, number in _LEVEL.items()}
_SOURCE = {
    LogSource.SCHEDULER: cycle_pb2.LOG_SOURCE_SCHEDULER,
    LogSource.NODE: cycle_pb2.LOG_SOURCE_NODE,
    LogSource.SYSTEM: cycle_pb2.LOG_SOURCE_SYSTEM,
    LogSource.USER: cycle_pb2.LOG_SOURCE_USER,
}


def fill_cycle(message: cycle_pb2.Cycle, state: ChainState) -> None:
    """Fill an empty message in place: on the hot path that costs half as much as building and copying one."""
    facts = state.facts
    message.flow_id, message.cycle, message.run = state.name
    message.run_id = facts.run_id
    message.status = CYCLE_STATUS[state.status]
    if state.reason:
        message.reason = state.reason
    set_timestamp(message.planned_time, facts.planned_ms)
    set_timestamp(message.start_time, facts.start_ms)
    if state.end_ms:
        set_timestamp(message.end_time, state.end_ms)
    message.revision = facts.revision
    message.origin = _ORIGIN[facts.origin]
    if facts.inputs_json:
        message.inputs_json = facts.inputs_json
    if state.components:
        counts = state.counts()
        message.counts.completed = counts.completed
        if counts.failed or counts.terminated or counts.skipped:
            message.counts.failed = counts.failed
            message.counts.terminated = counts.terminated
            message.counts.skipped = counts.skipped
    message.node_count = facts.node_count
    message.version = state.version
    if facts.rerun is not None:
        rerun = message.rerun
        rerun.source_run, rerun.kept_nodes = facts.rerun.source, facts.rerun.kept_count
        rerun.by, rerun.reason = facts.rerun.by, facts.rerun.reason
        rerun.from_node_ids.extend(facts.rerun.from_nodes)
    if facts.handlers is not None:
        message.phase = _PHASE[state.phase]
    if state.stop is not None:
        message.stop.by, message.stop.reason = state.stop.by, state.stop.reason
        set_timestamp(message.stop.at, state.stop.at_ms)
    if facts.traceparent:
        message.trace_id = facts.traceparent.split("-")[1]
    if facts.backfill_id:
        message.backfill_id = facts.backfill_id
    if facts.parent is not None:
        parent = message.parent
        parent.flow_id, parent.cycle, parent.run = facts.parent.run
        parent.node_id, parent.attempt, parent.depth = facts.parent.node, facts.parent.attempt, facts.parent.depth
    if state.notes is not NO_NOTES:
        message.error_code, message.result_json = state.notes.error, state.notes.result_json


def cycle(state: ChainState) -> cycle_pb2.Cycle:
    """Return a cycle as a message."""
    message = cycle_pb2.Cycle()
    fill_cycle(message, state)
    return message


def leave_out_large_fields(message: cycle_pb2.Cycle) -> None:
    """Make a cycle small, for an answer that would be too large."""
    message.ClearField("inputs_json")
    message.ClearField("result_json")
    if message.HasField("rerun"):
        message.rerun.ClearField("from_node_ids")


def statistics(counts: NodeCounts) -> cycle_pb2.CycleStatistics:
    """Return counts of nodes by status."""
    return cycle_pb2.CycleStatistics(
        total_nodes=counts.total,
        running_nodes=counts.running,
        completed_nodes=counts.completed,
        error_nodes=counts.failed,
        registered_nodes=counts.registered,
        pending_nodes=counts.pending,
        terminated_nodes=counts.terminated,
        skipped_nodes=counts.skipped,
        suspended_nodes=counts.suspended,
    )


def log_line(line: LogLine) -> cycle_pb2.LogLine:
    """Return a line of a log."""
    message = cycle_pb2.LogLine(
        log_id=line.log_id,
        flow_id=line.flow_id,
        cycle=line.cycle,
        node_id=line.node_id,
        level=_LEVEL[line.level],
        source=_SOURCE[line.source],
        message=line.text,
    )
    set_timestamp(message.created_at, line.at_ms)
    return message
