"""What requests must look like; every fault is listed with its path."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from google.protobuf.timestamp_pb2 import Timestamp

from tradewind.api.node_task_manager.v1 import component_pb2, node_task_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.node_task_manager.domain.limits import LONGEST_KEPT_MS, MOST_KEPT_CYCLES, SHORTEST_KEPT_MS
from tradewind.node_task_manager.domain.names import TaskName
from tradewind.node_task_manager.domain.plan import HIGHEST_PRIORITY, LOWEST_PRIORITY
from tradewind.node_task_manager.rpc.cache_mapping import cache_faults, offer_faults
from tradewind.node_task_manager.rpc.fan_out_mapping import fan_out_faults
from tradewind.node_task_manager.rpc.retry_mapping import retry_faults
from tradewind.node_task_manager.rpc.times import is_duration, is_instant, milliseconds
from tradewind.node_task_manager.rpc.waiting_mapping import built_in_faults
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import check_identifier
from tradewind.server.json_depth import check_depth
from tradewind.server.rates import Rate, cost_fault

_MAX_RUNS = 500
_MAX_COMPONENTS = 1000
_MAX_NODES = 10_000
_MAX_CONFIG_BYTES = 256 * 1024
_MAX_HELD = 10_000
_MAX_REPORTED = 1_000
_MAX_REFERENCES = 1000
_MAX_NODE_TYPES = 500
_SHORTEST_SILENCE_MS = 1000
_LOG_ID = re.compile(r"(\d{1,18}-\d{1,18})?", re.ASCII)
_raw = msgspec.json.Decoder(msgspec.Raw)


def identifiers(**fields: str) -> None:
    """Raise InvalidInput unless every field holds an identifier."""
    require(check_identifier(name, value) for name, value in fields.items())


def task_id(node_task_id: str, user_id: str) -> None:
    """Raise InvalidInput unless these can be the ids of a node task and of a user."""
    faults = [check_identifier("user_id", user_id)]
    try:
        TaskName.parse(node_task_id)
    except ValueError as error:
        faults.insert(0, Violation("node_task_id", str(error)))
    require(faults)


def at_most(path: str, items: Sequence[object], most: int = _MAX_REFERENCES) -> None:
    """Raise InvalidInput for more than `most` items."""
    if len(items) > most:
        raise InvalidInput([Violation(path, f"at most {most} at once, there are {len(items)}")])


def references(node_tasks: Sequence[pb2.NodeTaskReference]) -> None:
    """Raise InvalidInput for too many references, or with the faults of the first that cannot be a node task."""
    at_most("node_tasks", node_tasks)
    for each in node_tasks:
        task_id(each.node_task_id, each.user_id)


def runs(named: Sequence[pb2.RunReference]) -> None:
    """Raise InvalidInput for too many runs or components, or for invalid names."""
    at_most("runs", named, _MAX_RUNS)
    require(
        fault
        for at, run in enumerate(named)
        for fault in (
            check_identifier(f"runs[{at}].flow_id", run.flow_id),
            check_identifier(f"runs[{at}].user_id", run.user_id),
            _count_fault(f"runs[{at}].component_ids", run.component_ids, _MAX_COMPONENTS),
        )
    )


def stop(request: pb2.StopComponentRequest) -> None:
    """Raise InvalidInput unless this can name a component of a run, or a run."""
    faults = [check_identifier(name, getattr(request, name)) for name in ("flow_id", "user_id", "run_id")]
    if request.component_id:
        faults.append(check_identifier("component_id", request.component_id))
    if request.cycle < 0 or request.run < 0:
        faults.append(Violation("cycle", "cycle and run must be 0 or more"))
    require([*faults, _instant_fault("deadline", request.deadline)])


def release(request: pb2.ReleaseComponentsRequest) -> None:
    """Raise InvalidInput unless this can name a run and components of it."""
    faults = [check_identifier(name, getattr(request, name)) for name in ("flow_id", "user_id", "run_id")]
    faults.append(_count_fault("releases", request.releases, _MAX_COMPONENTS))
    for at, each in enumerate(request.releases):
        faults.append(check_identifier(f"releases[{at}].component_id", each.component_id))
        if each.inputs_json:
            faults.append(json_fault(f"releases[{at}].inputs_json", each.inputs_json, wants_object=True))
    require(faults)


def claim(request: pb2.ClaimNodeTasksRequest) -> None:
    """Raise InvalidInput unless this can name a worker and what it offers."""
    at_most("node_types", request.node_types, _MAX_NODE_TYPES)
    at_most("offers", request.offers, _MAX_NODE_TYPES)
    require(
        [
            check_identifier("worker_id", request.worker_id),
            Violation("limit", f"must not be negative, is {request.limit}") if request.limit < 0 else None,
            *(check_identifier(f"node_types[{at}]", name) for at, name in enumerate(request.node_types)),
            *offer_faults("offers", request.offers),
        ]
    )


def report(request: pb2.ReportNodeTasksRequest) -> None:
    """Raise InvalidInput for an invalid worker id, or too many of something."""
    identifiers(worker_id=request.worker_id)
    at_most("held_tokens", request.held_tokens, _MAX_HELD)
    for path in ("completions", "failures", "give_back_tokens", "progress", "logs"):
        at_most(path, getattr(request, path), _MAX_REPORTED)


def log_position(after_log_id: str) -> None:
    """Raise InvalidInput unless this is the id of a log line, or empty."""
    if not _LOG_ID.fullmatch(after_log_id):
        raise InvalidInput([Violation("after_log_id", "is not the log_id of a line")])


def submission(request: pb2.SubmitComponentsRequest) -> None:
    """Raise InvalidInput with every fault of runs and plans."""
    faults: list[Violation | None] = [_count_fault("runs", request.runs, _MAX_RUNS)]
    for at, run in enumerate(request.runs):
        found = [fault for fault in _run_faults(run) if fault is not None]
        faults += [Violation(f"runs[{at}].{fault.path}", fault.message) for fault in found]
    for at, plan in enumerate(request.plans):
        faults += _plan_faults(f"plans[{at}]", plan)
    require(faults)


def _run_faults(run: component_pb2.RunSubmission) -> Iterator[Violation | None]:
    yield check_identifier("flow_id", run.flow_id)
    yield check_identifier("run_id", run.run_id)
    yield check_identifier("user_id", run.user_id)
    if run.cycle < 0 or run.run < 0:
        yield Violation("cycle", "cycle and run must be 0 or more")
    parts = run.components
    if not parts:
        yield Violation("components", "must not be empty")
    yield _count_fault("components", parts, _MAX_COMPONENTS)
    if run.inputs_json:
        yield json_fault("inputs_json", run.inputs_json, wants_object=True)
    ids = [part.component_id for part in parts]
    for place, component_id in enumerate(ids):
        yield check_identifier(f"components[{place}].component_id", component_id)
    yield from _repeated("components", "component_id", ids)
    yield _instant_fault("planned_time", run.planned_time)
    yield _instant_fault("begun_at", run.begun_at)
    if not 0 <= run.keep_cycles <= MOST_KEPT_CYCLES:
        yield Violation("keep_cycles", f"must be 0 to {MOST_KEPT_CYCLES}, is {run.keep_cycles}")
    if run.HasField("keep_for"):
        seconds = run.keep_for.seconds + run.keep_for.nanos / 1e9
        if not SHORTEST_KEPT_MS <= seconds * 1000 <= LONGEST_KEPT_MS:
            yield Violation("keep_for", f"must be from a minute to 7 days, is {seconds:g} s")
    yield from _rerun_faults(run)


def _rerun_faults(run: component_pb2.RunSubmission) -> Iterator[Violation | None]:
    again = run.HasField("keep_from")
    if again:
        yield check_identifier("keep_from.run_id", run.keep_from.run_id)
        if not 0 <= run.keep_from.run < run.run:
            yield Violation("keep_from.run", f"must be an earlier run, 0 to {run.run - 1}")
    for at, part in enumerate(run.components):
        places = part.kept_nodes
        if places and not again:
            yield Violation(f"components[{at}].kept_nodes", "needs keep_from, the run that holds their results")
        elif places and part.withheld:
            yield Violation(f"components[{at}].kept_nodes", "must be empty for a withheld component")
        elif places and min(places) < 0:
            yield Violation(f"components[{at}].kept_nodes", "must hold places of nodes, from 0")


def _plan_faults(path: str, plan: component_pb2.Plan) -> Iterator[Violation | None]:
    count = len(plan.nodes)
    yield check_identifier(f"{path}.digest", plan.digest)
    if not count:
        yield Violation(f"{path}.nodes", "must not be empty")
    yield _count_fault(f"{path}.nodes", plan.nodes, _MAX_NODES)
    if plan.max_running < 0:
        yield Violation(f"{path}.max_running", f"must be at least 1, or 0 for no limit, is {plan.max_running}")
    for at, node in enumerate(plan.nodes):
        yield check_identifier(f"{path}.nodes[{at}].node_id", node.node_id)
        yield check_identifier(f"{path}.nodes[{at}].node_type", node.node_type)
        if len(node.config_json.encode()) > _MAX_CONFIG_BYTES:
            yield Violation(f"{path}.nodes[{at}].config_json", f"must have at most {_MAX_CONFIG_BYTES} bytes")
        elif node.config_json:
            yield json_fault(f"{path}.nodes[{at}].config_json", node.config_json)
        if not LOWEST_PRIORITY <= node.priority <= HIGHEST_PRIORITY:
            bounds = f"{LOWEST_PRIORITY} to {HIGHEST_PRIORITY}"
            yield Violation(f"{path}.nodes[{at}].priority", f"must be {bounds}, is {node.priority}")
        if node.HasField("concurrency"):
            yield from concurrency_faults(f"{path}.nodes[{at}].concurrency", node.concurrency)
        if node.HasField("rate"):
            yield from rate_faults(f"{path}.nodes[{at}].rate", node.rate)
        if node.HasField("cache"):
            yield from cache_faults(f"{path}.nodes[{at}].cache", node.cache)
        for name in ("schedule_to_start", "start_to_close", "heartbeat_timeout", "total_timeout"):
            if not is_duration(getattr(node, name)):
                yield Violation(f"{path}.nodes[{at}].{name}", "must be 0 to 100 years")
        if 0 < milliseconds(node.heartbeat_timeout) < _SHORTEST_SILENCE_MS:
            yield Violation(f"{path}.nodes[{at}].heartbeat_timeout", "must be 0 for none, or at least 1 s")
        if node.HasField("retry"):
            yield from retry_faults(f"{path}.nodes[{at}].retry", node.retry)
        yield from built_in_faults(f"{path}.nodes[{at}]", node)
        if node.HasField("fan_out"):
            yield from fan_out_faults(f"{path}.nodes[{at}]", plan, at)
    yield from _repeated(f"{path}.nodes", "node_id", [node.node_id for node in plan.nodes])
    loose = False
    for at, edge in enumerate(plan.edges):
        if not (0 <= edge.source < count and 0 <= edge.target < count):
            loose = True
            yield Violation(f"{path}.edges[{at}]", f"source and target must be places of nodes, 0 to {count - 1}")
    if not loose and _has_cycle(plan):
        yield Violation(f"{path}.edges", "must not form a cycle")


def rate_faults(path: str, given: node_task_pb2.KeyRate) -> Iterator[Violation | None]:
    """Yield the faults of a key's rate."""
    yield check_identifier(f"{path}.key", given.key)
    try:
        rate = Rate.parse(given.limit)
    except ValueError as error:
        yield Violation(f"{path}.limit", str(error))
    else:
        if fault := cost_fault(given.cost or 1, rate):
            yield Violation(f"{path}.cost", fault)


def concurrency_faults(path: str, concurrency: node_task_pb2.Concurrency) -> Iterator[Violation | None]:
    """Yield the faults of a key's limit."""
    yield check_identifier(f"{path}.key", concurrency.key)
    if concurrency.max < 1:
        yield Violation(f"{path}.max", f"must be at least 1, is {concurrency.max}")
    if concurrency.when_full not in node_task_pb2.WhenFull.values():
        yield Violation(f"{path}.when_full", f"{concurrency.when_full} is not a known value")


def _has_cycle(plan: component_pb2.Plan) -> bool:
    waiting, out = [0] * len(plan.nodes), [[] for _ in plan.nodes]  # type: tuple[list[int], list[list[int]]]
    for edge in plan.edges:
        waiting[edge.target] += 1
        out[edge.source].append(edge.target)
    ready = deque(place for place, count in enumerate(waiting) if not count)
    reached = 0
    while ready:
        reached += 1
        for target in out[ready.popleft()]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return reached < len(plan.nodes)


def _repeated(path: str, name: str, values: Sequence[str]) -> Iterator[Violation]:
    if len(set(values)) == len(values):
        return
    seen: set[str] = set()
    for at, value in enumerate(values):
        if value in seen:
            yield Violation(f"{path}[{at}].{name}", f'"{value}" occurs more than once')
        seen.add(value)


def _count_fault(path: str, items: Sequence[object], most: int) -> Violation | None:
    return Violation(path, f"at most {most} at once, there are {len(items)}") if len(items) > most else None


def _instant_fault(path: str, value: Timestamp) -> Violation | None:
    return None if is_instant(value) else Violation(path, "must be a time from 1970 to 9999")


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


def require(faults: Iterable[Violation | None]) -> None:
    """Raise InvalidInput when there are faults."""
    found = [fault for fault in faults if fault is not None]
    if found:
        raise InvalidInput(found)
