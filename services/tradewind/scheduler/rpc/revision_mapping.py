"""Maps revisions, diffs and plans to messages."""

from tradewind.api.scheduler.v1 import flow_pb2, plan_pb2, revision_pb2
from tradewind.scheduler.domain.binding_limits import BindingLimit
from tradewind.scheduler.domain.flow_diff import ChangeKind, EdgeChange, FieldChange, FlowDiff, NodeChange
from tradewind.scheduler.domain.placement import Placement
from tradewind.scheduler.domain.revision import Revision
from tradewind.scheduler.domain.structure import ComponentStructure
from tradewind.scheduler.rpc.flow_mapping import violations
from tradewind.scheduler.use_cases.plan_flow import FlowPlan
from tradewind.server.timestamps import set_timestamp

_NODES_NAMED = 100
_WORKERS_NAMED = 20
_KIND = {
    ChangeKind.ADDED: revision_pb2.CHANGE_KIND_ADDED,
    ChangeKind.REMOVED: revision_pb2.CHANGE_KIND_REMOVED,
    ChangeKind.CHANGED: revision_pb2.CHANGE_KIND_CHANGED,
}


def revision(found: Revision, current: int) -> revision_pb2.Revision:
    """Return a revision as a message; `current` is the number of the flow's current revision."""
    message = revision_pb2.Revision(
        revision=found.number,
        by=found.by,
        note=found.note,
        digest=found.digest,
        labels=dict(found.labels),
        open_runs=found.open_runs,
        current=found.number == current,
    )
    set_timestamp(message.created_at, found.at_ms)
    return message


def diff(found: FlowDiff) -> revision_pb2.FlowDiff:
    """Return a diff as a message."""
    return revision_pb2.FlowDiff(
        nodes=[_node_change(change) for change in found.nodes],
        edges=[_edge_change(change) for change in found.edges],
        settings=[_field_change(change) for change in found.settings],
        nodes_reordered=found.nodes_reordered,
        edges_reordered=found.edges_reordered,
    )


def plan(found: FlowPlan) -> plan_pb2.FlowPlan:
    """Return the plan of a registration as a message."""
    message = plan_pb2.FlowPlan(
        violations=violations(found.analysis.violations),
        components=[_waves(component) for component in found.analysis.structure.components],
        placements=[_placement(placement) for placement in found.placements],
        limits=[_limit(limit) for limit in found.limits],
    )
    definition = found.analysis.definition
    if definition is not None and definition.schedule.on:
        message.begins_on = definition.schedule.on.description
    for planned_ms in found.next_times_ms:
        set_timestamp(message.next_times.add(), planned_ms)
    if found.standing is not None:
        message.standing_revision, message.etag = found.standing.revision, found.standing.etag
    if found.diff is not None:
        message.diff.CopyFrom(diff(found.diff))
    return message


def _node_change(change: NodeChange) -> revision_pb2.NodeChange:
    return revision_pb2.NodeChange(
        node_id=change.node_id,
        kind=_KIND[change.kind],
        before_json=change.before_json,
        after_json=change.after_json,
        fields=[_field_change(field) for field in change.fields],
    )


def _edge_change(change: EdgeChange) -> revision_pb2.EdgeChange:
    source, source_handle, target, target_handle = change.edge
    edge = flow_pb2.EdgeSpec(source=source, source_handle=source_handle, target=target, target_handle=target_handle)
    return revision_pb2.EdgeChange(kind=_KIND[change.kind], edge=edge)


def _field_change(change: FieldChange) -> revision_pb2.FieldChange:
    return revision_pb2.FieldChange(path=change.path, before_json=change.before_json, after_json=change.after_json)


def _waves(component: ComponentStructure) -> plan_pb2.ComponentWaves:
    return plan_pb2.ComponentWaves(
        component_id=component.component_id,
        node_count=component.node_count,
        waves=[plan_pb2.Wave(node_count=len(wave), nodes=wave[:_NODES_NAMED]) for wave in component.waves],
    )


def _placement(placement: Placement) -> plan_pb2.Placement:
    return plan_pb2.Placement(
        node_type=placement.node_type,
        node_count=placement.node_count,
        worker_count=len(placement.worker_ids),
        worker_ids=placement.worker_ids[:_WORKERS_NAMED],
        slots=placement.slots,
        free_slots=placement.free_slots,
        draining=placement.draining,
    )


def _limit(limit: BindingLimit) -> plan_pb2.BindingLimit:
    return plan_pb2.BindingLimit(
        limit=limit.limit,
        subject=limit.subject,
        allowed=limit.allowed,
        wanted=limit.wanted,
        in_use=limit.in_use,
        message=limit.message,
    )
