"""What requests about ad-hoc tasks and batches must look like; every fault is listed with its path."""

from collections.abc import Collection, Iterable, Sequence

from tradewind.api.node_task_manager.v1 import batch_pb2
from tradewind.node_task_manager.domain.batch import MAX_ITEMS
from tradewind.node_task_manager.domain.names import RunName, TaskName
from tradewind.node_task_manager.rpc.cache_mapping import ad_hoc_cache_faults
from tradewind.node_task_manager.rpc.checks import json_fault
from tradewind.node_task_manager.rpc.node_checks import MAX_CONFIG_BYTES, node_faults
from tradewind.node_task_manager.use_cases.check_parameters import MAX_FAULTS
from tradewind.server.all_faults import require
from tradewind.server.built_in import BUILT_IN
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import check_identifier, request_id_faults, require_identifiers

MAX_BATCH_BYTES = 8 * 1024 * 1024


def task(request: batch_pb2.SubmitTaskRequest, caches: Collection[str]) -> None:
    """Raise InvalidInput with every fault; `caches` are the names of all caches."""
    require(
        [
            *_common_faults("", request, caches, batch=False),
            parameters_fault("parameters_json", request.parameters_json),
        ]
    )


def head(message: batch_pb2.SubmitBatchRequest, caches: Collection[str]) -> None:
    """Raise InvalidInput unless the first message of a batch describes it; `caches` are the names of all caches."""
    if not message.HasField("head"):
        raise InvalidInput([Violation("head", "must be in the first message, with user_id, node_type and total")])
    given = message.head
    faults = list(_common_faults("head.", given, caches, batch=True))
    if not 1 <= given.total <= MAX_ITEMS:
        faults.append(Violation("head.total", f"must be 1 to {MAX_ITEMS}, is {given.total}"))
    require(faults)


def unreadable_items(parameters: Sequence[str]) -> dict[int, Violation]:
    """Return, by place, the faults of items that are no JSON objects or too large; at most the first 100."""
    faults: dict[int, Violation] = {}
    for place, text in enumerate(parameters):
        fault = parameters_fault(f"parameters_json[{place}]", text)
        if fault is not None:
            faults[place] = fault
            if len(faults) == MAX_FAULTS:
                break
    return faults


def parameters_fault(path: str, text: str) -> Violation | None:
    """Return the fault of the parameters in field `path`, None when they are a JSON object, or empty."""
    if not text:
        return None
    size = len(text.encode())
    if size > MAX_CONFIG_BYTES:
        return Violation(path, f"must have at most {MAX_CONFIG_BYTES} bytes, has {size}")
    fault = json_fault(path, text)
    if fault is None and not text.lstrip().startswith("{"):
        return Violation(path, f"must be a JSON object, is {text[:40]}")
    return fault


def task_run(task_id: str, user_id: str) -> RunName:
    """Return the run of a task. Raises InvalidInput unless these can be the ids of a task and of a user."""
    faults = [check_identifier("user_id", user_id)]
    try:
        name = TaskName.parse(task_id)
        if name.node_id or not name.run.ad_hoc:
            raise ValueError(f'"{task_id}" is not task:<id>')
    except ValueError as error:
        require([Violation("task_id", str(error)), *faults])
        raise
    require(faults)
    return name.run


def logged_run(request: batch_pb2.ListTaskLogsRequest) -> RunName:
    """Return the task or batch whose lines are wanted. Raises InvalidInput with every fault."""
    if bool(request.task_id) == bool(request.batch_id):
        given = "not both" if request.task_id else "neither is"
        one = Violation("task_id", f"either this or batch_id must be set, {given}")
        require([one, check_identifier("user_id", request.user_id)])
    if request.task_id:
        return task_run(request.task_id, request.user_id)
    require_identifiers(batch_id=request.batch_id, user_id=request.user_id)
    return RunName.of_batch(request.batch_id)


def watched_task(task_id: str, user_id: str) -> None:
    """Raise InvalidInput unless these can be the ids of a task that has events, and of a user."""
    faults = [check_identifier("user_id", user_id)]
    try:
        if TaskName.parse(task_id).run.batch_id:
            raise ValueError(f'"{task_id}" is an item of a batch, which has no events: use WatchBatch')
    except ValueError as error:
        faults.insert(0, Violation("task_id", str(error)))
    require(faults)


def _common_faults(
    prefix: str, given: batch_pb2.SubmitTaskRequest | batch_pb2.BatchHead, caches: Collection[str], *, batch: bool
) -> Iterable[Violation | None]:
    yield check_identifier(f"{prefix}user_id", given.user_id)
    yield check_identifier(f"{prefix}node_type", given.node_type)
    if given.node_type in BUILT_IN:
        message = f'"{given.node_type}" is a built-in type, which only nodes of flows may have'
        yield Violation(f"{prefix}node_type", message)
    yield from request_id_faults(given.request_id, f"{prefix}request_id")
    yield from node_faults(f"{prefix}options", given.options)
    if given.options.HasField("cache"):
        yield from ad_hoc_cache_faults(f"{prefix}options.cache", given.options.cache, caches, batch=batch)
