"""Maps between Protobuf and the domain: node tasks, components and events."""

from collections.abc import Iterable

from tradewind.api.node_task_manager.v1 import component_pb2, node_task_manager_service_pb2, node_task_pb2
from tradewind.node_task_manager.domain.component import Component, ComponentStatus
from tradewind.node_task_manager.domain.item_counts import ItemCounts
from tradewind.node_task_manager.domain.names import TaskName
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus, PastAttempt, TaskError
from tradewind.node_task_manager.ports.events import ComponentEvent, Event, OpenEvent, SubFlowEvent
from tradewind.node_task_manager.ports.reading import StoredLine
from tradewind.node_task_manager.rpc.fan_out_mapping import item_counts
from tradewind.node_task_manager.rpc.stop_mapping import stop_mark
from tradewind.node_task_manager.rpc.sub_flow_mapping import sub_flow_cycle, sub_flow_event
from tradewind.node_task_manager.rpc.times import timestamp
from tradewind.node_task_manager.rpc.waiting_mapping import resumption, wait
from tradewind.node_task_manager.use_cases.task_views import SignalView, TaskView
from tradewind.server.timestamps import set_timestamp


def task_error(error: TaskError | None) -> node_task_pb2.NodeTaskError | None:
    """Return why a node task failed, None when it did not."""
    if error is None:
        return None
    return node_task_pb2.NodeTaskError(
        code=error.code, message=error.message, type=error.type, traceback=error.traceback, final_reason=error.final
    )


def component(found: Component) -> component_pb2.Component:
    """Return a component of a run."""
    finished = found.status is ComponentStatus.FINISHED
    return component_pb2.Component(
        flow_id=found.run.flow_id,
        cycle=found.run.cycle,
        run=found.run.run,
        run_id=found.run_id,
        component_id=found.component_id,
        status=component_pb2.COMPONENT_STATUS_FINISHED if finished else component_pb2.COMPONENT_STATUS_RUNNING,
        counts=node_task_pb2.StatusCounts(
            completed=found.completed, failed=found.failed, terminated=found.terminated, skipped=found.skipped
        ),
        node_count=found.nodes,
        sinks_completed=found.sinks_completed,
        withheld=found.withheld,
        stop=stop_mark(found.stop),
        submitted_at=timestamp(found.submitted_at),
        finished_at=timestamp(found.finished_at),
    )


def fill_event(event: component_pb2.Event, shard: int, found: Event) -> None:
    """Fill in an empty event for the scheduler in place: nesting finished messages would copy them each time."""
    event.event_id, event.partition, event.shard = found.event_id, found.partition, shard
    if isinstance(found, ComponentEvent):
        _fill_finished(event.component_finished, found)
    elif isinstance(found, SubFlowEvent):
        event.sub_flow.CopyFrom(sub_flow_event(found))
    else:
        event.component_open.user_id = found.user_id
        component = event.component_open.component
        _name_component(component, found)
        component.status = component_pb2.COMPONENT_STATUS_RUNNING
        set_timestamp(component.submitted_at, found.begun_at)


def _fill_finished(finished: component_pb2.ComponentFinished, found: ComponentEvent) -> None:
    """Fill in that a component finished. Most numbers are 0, and each field that is set costs time."""
    if found.sink:
        finished.sink = found.sink
    for handle, value in found.outputs:
        output = finished.outputs.add()
        output.handle = handle
        output.value_json = value
    component = finished.component
    _name_component(component, found)
    component.status = component_pb2.COMPONENT_STATUS_FINISHED
    component.node_count = found.nodes
    if found.sinks:
        component.sinks_completed = found.sinks
    counts = component.counts
    if found.completed:
        counts.completed = found.completed
    if found.failed:
        counts.failed = found.failed
    if found.terminated:
        counts.terminated = found.terminated
    if found.skipped:
        counts.skipped = found.skipped
    set_timestamp(component.finished_at, found.at)
    stop = stop_mark(found.stop)
    if stop is not None:
        component.stop.CopyFrom(stop)


def _name_component(component: component_pb2.Component, found: ComponentEvent | OpenEvent) -> None:
    flow_id, cycle, run = found.run.split(":")
    component.flow_id, component.cycle = flow_id, int(cycle)
    if run != "0":
        component.run = int(run)
    component.run_id, component.component_id = found.run_id, found.component


def node_task(view: TaskView, *, config: bool = False, history: bool = False) -> node_task_pb2.NodeTask:
    """Return a node task, with its config and history on request."""
    task, name = view.task, TaskName.parse(view.task.task_id)
    run, items = name.run, view.items
    node = view.node
    failed = task.status is NodeTaskStatus.FAILED
    return node_task_pb2.NodeTask(
        node_task_id=task.task_id,
        flow_id=run.flow_id,
        cycle=run.cycle,
        run=run.run,
        run_id=view.component.run_id,
        component_id=task.component_id,
        node_id=node.node_id,
        node_type=node.node_type,
        user_id=view.component.user_id,
        status=node_task_pb2.NodeTaskStatus.Value(f"NODE_TASK_STATUS_{task.status.upper()}"),
        reason=view.reason,
        error=task_error(task.error) if failed else None,
        attempt=task.attempt,
        worker_id=task.worker_id,
        progress=items.ended * 100 // items.total if items and items.total else task.progress,
        message=_items_text(items) if items else task.message,
        current_step=task.step,
        cached_in=task.cached,
        kept_from=task.kept,
        registered_at=timestamp(task.registered_at),
        ready_at=timestamp(task.ready_at),
        started_at=timestamp(task.started_at),
        ended_at=timestamp(task.ended_at),
        updated_at=timestamp(task.updated_at),
        lease_deadline=timestamp(task.lease_deadline),
        outputs=[node_task_pb2.Output(handle=handle, value_json=value) for handle, value in task.outputs],
        emitted_handles=task.emitted,
        config_json=node.config_json if config else "",
        stop=stop_mark(task.stop),
        failures=task.failures,
        max_attempts=node.retry.attempts if node.retry else 1,
        retry_at=timestamp(task.retry_at) if task.failures and not task.waits_for_same_work else None,
        last_error=None if failed else task_error(task.error),
        history=[_past_attempt(each) for each in task.history] if config or history else (),
        items=item_counts(items),
        item=name.item if name.item >= 0 else None,
        wait=wait(task.wait),
        resumed=resumption(task.resumed),
        sub_flow=sub_flow_cycle(task.child),
    )


def _items_text(items: ItemCounts) -> str:
    return f"{items.ended} of {items.total} items have ended" + (f", {items.open} are open" if items.open else "")


def _past_attempt(past: PastAttempt) -> node_task_pb2.PastAttempt:
    return node_task_pb2.PastAttempt(
        attempt=past.attempt,
        worker_id=past.worker_id,
        began_at=timestamp(past.began),
        ended_at=timestamp(past.ended),
        code=past.how,
    )


def node_outputs(task_id: str, outputs: Iterable[tuple[str, str]]) -> node_task_manager_service_pb2.NodeTaskOutputs:
    """Return what a node task emitted."""
    return node_task_manager_service_pb2.NodeTaskOutputs(
        node_task_id=task_id,
        outputs=[node_task_pb2.Output(handle=handle, value_json=value) for handle, value in outputs],
    )


def signals(found: Iterable[SignalView]) -> list[node_task_pb2.Signal]:
    """Return the signals along edges."""
    return [
        node_task_pb2.Signal(
            source=each.source,
            source_handle=each.edge.source_handle,
            target=each.target,
            target_handle=each.edge.target_handle,
            status=node_task_pb2.SignalStatus.Value(f"SIGNAL_STATUS_{each.status.upper()}"),
        )
        for each in found
    ]


def log_line(line: StoredLine) -> node_task_pb2.NodeLog:
    """Return a line that a node logged."""
    return node_task_pb2.NodeLog(
        log_id=line.log_id,
        cycle=line.cycle,
        run=line.run,
        node_id=line.node_id,
        level=line.level,
        source=line.source,
        message=line.message,
        created_at=timestamp(line.at),
        attempt=line.attempt,
    )
