"""What requests must look like; every fault is listed with its path."""

import re
from collections.abc import Sequence, Sized
from itertools import islice

import msgspec

from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.node_task_manager.domain.names import TaskName
from tradewind.node_task_manager.rpc.offer_mapping import offer_faults
from tradewind.server.all_faults import require
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import check_identifier
from tradewind.server.json_depth import check_depth
from tradewind.server.timestamps import instant_fault

MAX_RUNS = 500
MAX_COMPONENTS = 1000
_MAX_HELD = 10_000
_MAX_REPORTED = 1_000
_MAX_REFERENCES = 1000
MAX_NODE_TYPES = 500
STREAM_POSITION = re.compile(r"\d{1,18}-\d{1,18}", re.ASCII)
"""The position of an entry in a stream of the store."""
_raw = msgspec.json.Decoder(msgspec.Raw)


def task_id(node_task_id: str, user_id: str) -> None:
    """Raise InvalidInput unless these can be the ids of a node task and of a user."""
    require([task_id_fault("node_task_id", node_task_id), check_identifier("user_id", user_id)])


def at_most(path: str, items: Sized, most: int = _MAX_REFERENCES) -> None:
    """Raise InvalidInput for more than `most` items."""
    require([count_fault(path, items, most)])


def references(node_tasks: Sequence[pb2.NodeTaskReference]) -> None:
    """Raise InvalidInput for too many references, or for some that cannot be node tasks."""
    at_most("node_tasks", node_tasks)
    require(
        fault
        for at, each in enumerate(node_tasks)
        for fault in (
            task_id_fault(f"node_tasks[{at}].node_task_id", each.node_task_id),
            check_identifier(f"node_tasks[{at}].user_id", each.user_id),
        )
    )


def runs(named: Sequence[pb2.RunReference]) -> None:
    """Raise InvalidInput for too many runs or components, or for invalid names."""
    at_most("runs", named, MAX_RUNS)
    require(
        fault
        for at, run in enumerate(named)
        for fault in (
            check_identifier(f"runs[{at}].flow_id", run.flow_id),
            check_identifier(f"runs[{at}].user_id", run.user_id),
            count_fault(f"runs[{at}].component_ids", run.component_ids, MAX_COMPONENTS),
        )
    )


def stop(request: pb2.StopComponentRequest) -> None:
    """Raise InvalidInput unless this can name a component of a run, or a run."""
    faults = [check_identifier(name, getattr(request, name)) for name in ("flow_id", "user_id", "run_id")]
    if request.component_id:
        faults.append(check_identifier("component_id", request.component_id))
    faults += [Violation(name, "must be 0 or more") for name in ("cycle", "run") if getattr(request, name) < 0]
    require([*faults, instant_fault("deadline", request.deadline)])


def release(request: pb2.ReleaseComponentsRequest) -> None:
    """Raise InvalidInput unless this can name a run and components of it."""
    faults = [check_identifier(name, getattr(request, name)) for name in ("flow_id", "user_id", "run_id")]
    faults.append(count_fault("releases", request.releases, MAX_COMPONENTS))
    for at, each in enumerate(request.releases):
        faults.append(check_identifier(f"releases[{at}].component_id", each.component_id))
        if each.inputs_json:
            faults.append(json_fault(f"releases[{at}].inputs_json", each.inputs_json, wants_object=True))
    require(faults)


def claim(request: pb2.ClaimNodeTasksRequest) -> None:
    """Raise InvalidInput unless this can name a worker and what it offers."""
    require(
        [
            count_fault("node_types", request.node_types, MAX_NODE_TYPES),
            count_fault("offers", request.offers, MAX_NODE_TYPES),
            check_identifier("worker_id", request.worker_id),
            Violation("limit", f"must not be negative, is {request.limit}") if request.limit < 0 else None,
            *(check_identifier(f"node_types[{at}]", name) for at, name in enumerate(request.node_types)),
            *islice(offer_faults("offers", request.offers), MAX_NODE_TYPES),
        ]
    )


def report(request: pb2.ReportNodeTasksRequest) -> None:
    """Raise InvalidInput for an invalid worker id, or too many of something."""
    lists = ("completions", "failures", "give_back_tokens", "progress", "logs")
    require(
        [
            check_identifier("worker_id", request.worker_id),
            count_fault("held_tokens", request.held_tokens, _MAX_HELD),
            *(count_fault(path, getattr(request, path), _MAX_REPORTED) for path in lists),
        ]
    )


def log_position(after_log_id: str) -> None:
    """Raise InvalidInput unless this is the id of a log line, or empty."""
    if after_log_id and not STREAM_POSITION.fullmatch(after_log_id):
        raise InvalidInput([Violation("after_log_id", "is not the log_id of a line")])


def task_id_fault(path: str, task_id: str) -> Violation | None:
    """Return why this cannot be the id of a node task, None when it can."""
    try:
        TaskName.parse(task_id)
    except ValueError as error:
        return Violation(path, str(error))
    return None


def count_fault(path: str, items: Sized, most: int) -> Violation | None:
    """Return the fault that there are more than `most` items, None when there are not."""
    return Violation(path, f"at most {most} at once, there are {len(items)}") if len(items) > most else None


def json_fault(path: str, text: str, *, wants_object: bool = False) -> Violation | None:
    """Return the fault of JSON text, whose numbers may be of any size; None when it has none."""
    try:
        value = _raw.decode(text)
        check_depth(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return Violation(path, f"is not JSON: {error}")
    if wants_object and not bytes(value).lstrip().startswith(b"{"):
        return Violation(path, "must be a JSON object")
    return None
