"""Maps between Protobuf and the domain: submitted runs and their plans."""

from tradewind.api.node_task_manager.v1 import batch_pb2, component_pb2, node_task_pb2
from tradewind.node_task_manager.domain.built_in_waits import wait_of
from tradewind.node_task_manager.domain.component import RunSubmission, SubmitOutcome, SubmitResult
from tradewind.node_task_manager.domain.concurrency import Concurrency, WhenFull
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import (
    SCHEDULE_TO_START_MS,
    START_TO_CLOSE_MS,
    FailurePolicy,
    Plan,
    PlanEdge,
    PlanNode,
    RunIf,
)
from tradewind.node_task_manager.rpc.cache_mapping import cache_use
from tradewind.node_task_manager.rpc.fan_out_mapping import fan_out
from tradewind.node_task_manager.rpc.retry_mapping import retry_policy
from tradewind.server.partitions import partition_of
from tradewind.server.rates import KeyRate, Rate
from tradewind.server.timestamps import instant_ms, milliseconds

_RUN_IF = {node_task_pb2.RUN_IF_ANY_SUCCEEDED: RunIf.ANY_SUCCEEDED, node_task_pb2.RUN_IF_ALL_DONE: RunIf.ALL_DONE}
_POLICY = {
    node_task_pb2.FAILURE_POLICY_FAIL_FAST: FailurePolicy.FAIL_FAST,
    node_task_pb2.FAILURE_POLICY_CONTINUE: FailurePolicy.CONTINUE,
}
_WHEN_FULL = {
    node_task_pb2.WHEN_FULL_DROP_NEW: WhenFull.DROP_NEW,
    node_task_pb2.WHEN_FULL_CANCEL_OLDEST: WhenFull.CANCEL_OLDEST,
    node_task_pb2.WHEN_FULL_KEEP_NEWEST: WhenFull.KEEP_NEWEST,
}
_OUTCOME = {
    SubmitOutcome.ACCEPTED: component_pb2.SUBMIT_OUTCOME_ACCEPTED,
    SubmitOutcome.DUPLICATE: component_pb2.SUBMIT_OUTCOME_DUPLICATE,
    SubmitOutcome.PLAN_UNKNOWN: component_pb2.SUBMIT_OUTCOME_PLAN_UNKNOWN,
    SubmitOutcome.RUN_CONFLICT: component_pb2.SUBMIT_OUTCOME_RUN_CONFLICT,
    SubmitOutcome.EVENTS_FULL: component_pb2.SUBMIT_OUTCOME_REFUSED,
    SubmitOutcome.FLOW_PURGED: component_pb2.SUBMIT_OUTCOME_REFUSED,
    SubmitOutcome.QUEUE_FULL: component_pb2.SUBMIT_OUTCOME_REFUSED,
    SubmitOutcome.RESULTS_EXPIRED: component_pb2.SUBMIT_OUTCOME_REFUSED,
}
_REFUSED = {
    SubmitOutcome.EVENTS_FULL: ("QUEUE_FULL", 1),
    SubmitOutcome.QUEUE_FULL: ("QUEUE_FULL", 5),
    SubmitOutcome.FLOW_PURGED: ("FLOW_DELETING", 0),
    SubmitOutcome.RESULTS_EXPIRED: ("RESULTS_EXPIRED", 0),
}


def plan(message: component_pb2.Plan) -> Plan:
    """Parse a plan."""
    return Plan(
        message.digest,
        tuple(_plan_node(node) for node in message.nodes),
        tuple(PlanEdge(e.source, e.source_handle, e.target, e.target_handle) for e in message.edges),
        _POLICY.get(message.failure_policy, FailurePolicy.SKIP_DOWNSTREAM),
        message.max_running,
    )


def _plan_node(node: component_pb2.PlanNode) -> PlanNode:
    return PlanNode(
        node.node_id,
        node.node_type,
        node.config_json,
        _RUN_IF.get(node.run_if, RunIf.ALL_SUCCEEDED),
        milliseconds(node.schedule_to_start) if node.HasField("schedule_to_start") else SCHEDULE_TO_START_MS,
        milliseconds(node.start_to_close) if node.HasField("start_to_close") else START_TO_CLOSE_MS,
        retry=retry_policy(node),
        heartbeat_ms=milliseconds(node.heartbeat_timeout),
        total_ms=milliseconds(node.total_timeout),
        priority=node.priority,
        concurrency=concurrency(node),
        rate=key_rate(node),
        cache=cache_use(node.cache),
        fan_out=fan_out(node),
        wait=wait_of(node.node_type, node.config_json),
    )


def concurrency(node: component_pb2.PlanNode | batch_pb2.TaskOptions) -> Concurrency | None:
    """Parse how many node tasks may run at once under a key, None when the node names no key."""
    if not node.HasField("concurrency"):
        return None
    given = node.concurrency
    return Concurrency(given.key, given.max, _WHEN_FULL.get(given.when_full, WhenFull.WAIT))


def key_rate(node: component_pb2.PlanNode | batch_pb2.TaskOptions) -> KeyRate | None:
    """Parse how many node tasks may begin in a period under a key, None when the node names no key.

    Raises ValueError for an invalid limit.
    """
    if not node.HasField("rate"):
        return None
    return KeyRate(node.rate.key, Rate.parse(node.rate.limit), node.rate.cost or 1)


def run_submission(message: component_pb2.RunSubmission) -> RunSubmission:
    """Parse a submission, whatever is in it; a time that stores cannot hold becomes -1."""
    # Each field is read once, and what few runs have only where it is set: runs come by the hundred.
    flow_id = message.flow_id
    components: list[tuple[str, str]] = []
    withheld: list[str] = []
    kept: list[tuple[str, tuple[int, ...]]] = []
    # A slice, because a loop over a message's own field costs an IndexError at the end.
    for part in message.components[:]:
        component_id = part.component_id
        components.append((component_id, part.plan_digest))
        if part.withheld:
            withheld.append(component_id)
        if places := part.kept_nodes:
            kept.append((component_id, tuple(places)))
    keep_from = message.keep_from if message.HasField("keep_from") else None
    return RunSubmission(
        run=RunName(flow_id, message.cycle, message.run),
        run_id=message.run_id,
        user_id=message.user_id,
        components=tuple(components),
        partition=partition_of(flow_id),
        inputs_json=message.inputs_json,
        traceparent=message.traceparent[:256],
        planned_ms=instant_ms(message.planned_time),
        begun_ms=instant_ms(message.begun_at),
        keep_cycles=message.keep_cycles,
        keep_for_ms=milliseconds(message.keep_for) if message.HasField("keep_for") else 0,
        source=-1 if keep_from is None else keep_from.run,
        source_id="" if keep_from is None else keep_from.run_id,
        withheld=tuple(withheld),
        kept=tuple(kept),
    )


def fill_submit_result(message: component_pb2.SubmitResult, result: SubmitResult) -> None:
    """Fill in the answer to a submission; nearly all are accepted."""
    if result.outcome is SubmitOutcome.ACCEPTED:
        message.outcome = component_pb2.SUBMIT_OUTCOME_ACCEPTED
        return
    message.outcome = _OUTCOME[result.outcome]
    message.unknown_plans.extend(result.unknown_plans)
    message.existing_run_id = result.existing_run_id
    message.reason, delay_s = _REFUSED.get(result.outcome, ("", 0))
    if delay_s:
        message.retry_delay.FromSeconds(delay_s)
