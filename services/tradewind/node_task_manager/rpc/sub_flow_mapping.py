"""Maps between Protobuf and the domain: node tasks that wait for cycles of other flows."""

from collections.abc import Iterator

from tradewind.api.node_task_manager.v1 import node_task_pb2, sub_flow_pb2
from tradewind.node_task_manager.domain.limits import OUTPUT_BYTES
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.domain.sub_flow import MAX_AT_ONCE, ReportKind, SubFlowReport
from tradewind.node_task_manager.ports.events import SubFlowEvent
from tradewind.node_task_manager.rpc.checks import json_fault, task_id_fault
from tradewind.node_task_manager.use_cases.sub_flows import Reported, SubFlowWait
from tradewind.server.all_faults import require
from tradewind.server.faults import Violation

_MAX_MESSAGE = 4096


def sub_flow_cycle(name: str) -> node_task_pb2.SubFlowCycle | None:
    """Return the run of another flow from its name, None when the name is empty."""
    if not name:
        return None
    run = RunName.of_cycle(name)
    return node_task_pb2.SubFlowCycle(flow_id=run.flow_id, cycle=run.cycle, run=run.run)


def sub_flow_event(found: SubFlowEvent) -> sub_flow_pb2.SubFlowEvent:
    """Return an event for the scheduler."""
    return sub_flow_pb2.SubFlowEvent(
        node_task_id=found.task_id, run_id=found.run_id, user_id=found.user_id, abandoned=sub_flow_cycle(found.child)
    )


def sub_flow_wait(wait: SubFlowWait) -> sub_flow_pb2.SubFlowWait:
    """Return a node task that waits."""
    return sub_flow_pb2.SubFlowWait(
        node_task_id=wait.task.task_id,
        run_id=wait.run_id,
        attempt=wait.task.attempt,
        flow_id=wait.flow_id,
        cycle=sub_flow_cycle(wait.task.child),
        inputs_json=wait.inputs_json,
        input_bytes=wait.input_bytes,
    )


def reports(request: sub_flow_pb2.ReportSubFlowsRequest) -> list[Reported]:
    """Parse reports. Raises InvalidInput with every fault."""
    faults = [violation for at, each in enumerate(request.reports) for violation in _faults(f"reports[{at}]", each)]
    if len(request.reports) > MAX_AT_ONCE:
        faults.append(Violation("reports", f"at most {MAX_AT_ONCE}, there are {len(request.reports)}"))
    require(faults)
    return [(each.user_id, _report(each)) for each in request.reports]


def _report(each: sub_flow_pb2.SubFlowReport) -> SubFlowReport:
    kind, error = ReportKind.BEGUN, None
    match each.WhichOneof("end"):
        case "output_json":
            kind = ReportKind.COMPLETED
        case "error":
            kind = ReportKind.FAILED
            error = TaskError(each.error.code, each.error.message[:_MAX_MESSAGE], each.error.type)
    child = str(RunName(each.cycle.flow_id, each.cycle.cycle, each.cycle.run)) if each.HasField("cycle") else ""
    return SubFlowReport(each.node_task_id, each.run_id, each.attempt, kind, child, each.output_json, error, each.final)


def _faults(path: str, each: sub_flow_pb2.SubFlowReport) -> Iterator[Violation | None]:
    yield task_id_fault(f"{path}.node_task_id", each.node_task_id)
    if each.WhichOneof("end") != "output_json":
        if each.WhichOneof("end") is None and not each.HasField("cycle"):
            yield Violation(f"{path}.cycle", "must say which cycle began")
        return
    if len(each.output_json.encode()) > OUTPUT_BYTES:
        yield Violation(f"{path}.output_json", f"must have at most {OUTPUT_BYTES // 1024} KiB")
    else:
        yield json_fault(f"{path}.output_json", each.output_json)
