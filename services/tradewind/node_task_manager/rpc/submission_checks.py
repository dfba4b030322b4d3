"""What submitted runs and their plans must look like; every fault is listed with its path."""

from collections import deque
from collections.abc import Iterator, Sequence

from tradewind.api.node_task_manager.v1 import component_pb2
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.limits import LONGEST_KEPT_MS, MAX_KEPT_CYCLES, SHORTEST_KEPT_MS
from tradewind.node_task_manager.rpc.cache_mapping import cache_faults
from tradewind.node_task_manager.rpc.checks import MAX_COMPONENTS, MAX_RUNS, count_fault, json_fault
from tradewind.node_task_manager.rpc.fan_out_mapping import fan_out_faults
from tradewind.node_task_manager.rpc.node_checks import MAX_CONFIG_BYTES, node_faults
from tradewind.node_task_manager.rpc.waiting_mapping import built_in_faults
from tradewind.server.all_faults import require
from tradewind.server.faults import Violation
from tradewind.server.identifiers import check_identifier, is_identifier
from tradewind.server.timestamps import instant_fault

_MAX_NODES = 10_000


def submission(
    messages: Sequence[component_pb2.RunSubmission], runs: Sequence[RunSubmission], plans: Sequence[component_pb2.Plan]
) -> None:
    """Raise InvalidInput with every fault of runs and plans; `runs` are what `messages` were parsed into."""
    faults: list[Violation | None] = [count_fault("runs", runs, MAX_RUNS)]
    for at, (message, run) in enumerate(zip(messages, runs, strict=True)):
        for fault in _run_faults(message, run):
            faults.append(Violation(f"runs[{at}].{fault.path}", fault.message))
    for at, plan in enumerate(plans):
        faults += _plan_faults(f"plans[{at}]", plan)
    require(faults)


def _run_faults(message: component_pb2.RunSubmission, run: RunSubmission) -> list[Violation]:
    # No generators, and of the message only what the parsed run does not say: nearly all runs are without fault, and
    # they come by the hundred.
    ids = [component_id for component_id, _ in run.components]
    faults = [
        check_identifier("flow_id", run.run.flow_id),
        check_identifier("run_id", run.run_id),
        check_identifier("user_id", run.user_id),
        count_fault("components", ids, MAX_COMPONENTS),
    ]
    for at, each in enumerate(ids):
        if not is_identifier(each):
            faults.append(check_identifier(f"components[{at}].component_id", each))
    if len(set(ids)) < len(ids):
        faults += _repeated("components", "component_id", ids)
    if run.planned_ms < 0 or run.begun_ms < 0:
        faults += [instant_fault("planned_time", message.planned_time), instant_fault("begun_at", message.begun_at)]
    if run.run.cycle < 0 or run.run.run < 0:
        faults.append(Violation("cycle", "cycle and run must be 0 or more"))
    if not ids:
        faults.append(Violation("components", "must not be empty"))
    if run.inputs_json:
        faults.append(json_fault("inputs_json", run.inputs_json, wants_object=True))
    if not 0 <= run.keep_cycles <= MAX_KEPT_CYCLES:
        faults.append(Violation("keep_cycles", f"must be 0 to {MAX_KEPT_CYCLES}, is {run.keep_cycles}"))
    if message.HasField("keep_for"):
        # From the message, since milliseconds leave out the rest of one.
        seconds = message.keep_for.seconds + message.keep_for.nanos / 1e9
        if not SHORTEST_KEPT_MS <= seconds * 1000 <= LONGEST_KEPT_MS:
            faults.append(Violation("keep_for", f"must be from a minute to 7 days, is {seconds:g} s"))
    if run.kept or message.HasField("keep_from"):
        faults += _rerun_faults(message)
    return [fault for fault in faults if fault is not None]


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
    yield check_identifier(f"{path}.digest", plan.digest)
    if not plan.nodes:
        yield Violation(f"{path}.nodes", "must not be empty")
    yield count_fault(f"{path}.nodes", plan.nodes, _MAX_NODES)
    if plan.max_running < 0:
        yield Violation(f"{path}.max_running", f"must be at least 1, or 0 for no limit, is {plan.max_running}")
    for at, node in enumerate(plan.nodes):
        yield from _plan_node_faults(f"{path}.nodes[{at}]", node)
        if node.HasField("fan_out"):
            yield from fan_out_faults(f"{path}.nodes[{at}]", plan, at)
    yield from _repeated(f"{path}.nodes", "node_id", [node.node_id for node in plan.nodes])
    count = len(plan.nodes)
    loose = [at for at, edge in enumerate(plan.edges) if not (0 <= edge.source < count and 0 <= edge.target < count)]
    for at in loose:
        yield Violation(f"{path}.edges[{at}]", f"source and target must be places of nodes, 0 to {count - 1}")
    if not loose and _has_cycle(plan):
        yield Violation(f"{path}.edges", "must not form a cycle")


def _plan_node_faults(path: str, node: component_pb2.PlanNode) -> Iterator[Violation | None]:
    yield check_identifier(f"{path}.node_id", node.node_id)
    yield check_identifier(f"{path}.node_type", node.node_type)
    if len(node.config_json.encode()) > MAX_CONFIG_BYTES:
        yield Violation(f"{path}.config_json", f"must have at most {MAX_CONFIG_BYTES} bytes")
    elif node.config_json:
        yield json_fault(f"{path}.config_json", node.config_json)
    yield from node_faults(path, node)
    if node.HasField("cache"):
        yield from cache_faults(f"{path}.cache", node.cache)
    yield from built_in_faults(path, node)


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
    seen: set[str] = set()
    for at, value in enumerate(values):
        if value in seen:
            yield Violation(f"{path}[{at}].{name}", f'"{value}" occurs more than once')
        seen.add(value)
