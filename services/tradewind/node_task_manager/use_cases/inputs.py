"""Completing assignments with the values of their input handles."""

from typing import TypeAlias

from msgspec import structs

from tradewind.node_task_manager.domain.eager import NONE, eager_steps
from tradewind.node_task_manager.domain.handles import Declared, unknown_handles
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import ELSEWHERE, TaskError
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.domain.retry import RetryRequest
from tradewind.node_task_manager.ports.reading import NodeTaskReader
from tradewind.node_task_manager.ports.work import Assignment, Outcome, OutcomeKind
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.server.sizes import size_of

MAX_INPUT_BYTES = 3 * 1024 * 1024

Inputs: TypeAlias = tuple[tuple[int, str], ...]
"""Values, each with the place of the edge that brings it; ELSEWHERE for one that stays with its source."""


class InputsTooLarge(Exception):
    """The inputs of a node task have at least `size` bytes together, which exceeds the limit."""

    def __init__(self, size: int) -> None:
        limit = MAX_INPUT_BYTES // 1024 // 1024
        super().__init__(
            f"the inputs have at least {size} bytes in total, the limit is {limit} MiB: store large values elsewhere "
            "and emit references"
        )
        self.size = size


class UnknownHandle(LookupError):
    """An edge leaves the node by an output handle that its type does not have."""


def unassignable_outcome(given: Assignment, why: LookupError | InputsTooLarge) -> Outcome:
    """Return the failure of a node task that no worker can get: an edge leaves by an unknown handle, the inputs are too
    large, the plan is gone, or another plan has the same digest."""
    match why:
        case UnknownHandle():
            error = TaskError("UNKNOWN_HANDLE", str(why))
        case InputsTooLarge():
            error = TaskError("INPUT_TOO_LARGE", str(why))
        case _:
            error = wrong_plan(given.plan)
    never = RetryRequest(none=True)
    return Outcome(given.task_id, given.attempt, given.nonce, OutcomeKind.FAILED, (), error, never, unreported=True)


def wrong_plan(digest: str) -> TaskError:
    """Return the error of a node task that its plan says nothing about."""
    message = f"plan {digest} is gone, or is not the plan of this node task: each plan needs its own digest"
    return TaskError("INTERNAL", message)


def has_all_inputs(assignment: Assignment) -> bool:
    """Say whether every value came with the assignment."""
    return not assignment.inputs_outside and ELSEWHERE not in [value for _, value in assignment.inputs]


def ready(
    shard: int,
    assignment: Assignment,
    plan: Plan,
    declared: Declared = frozenset(),
    eager_types: frozenset[str] = frozenset(),
) -> Ready:
    """Group the values of an assignment by input handle, each group in the order of the plan; add the nodes of
    `eager_types` that its worker may go on with.

    Raises UnknownHandle when an edge leaves the node by an output handle that its type, as `declared`, does not have,
    and LookupError when this is not the plan of the node task.
    """
    wrong = unknown_handles(plan, declared)
    if assignment.index in wrong:
        raise UnknownHandle(wrong[assignment.index])
    return Ready(
        shard,
        assignment,
        RunName.of_node_task(assignment.task_id),
        plan.node(assignment.index),
        tuple(by_handle(plan, assignment.inputs).items()) if assignment.inputs else (),
        eager_steps(plan, assignment.index, eager_types) if eager_types and not wrong else NONE,
    )


def by_handle(plan: Plan, inputs: Inputs) -> dict[str, list[str]]:
    """Group values by input handle, each group in the order of the plan."""
    grouped: dict[str, list[str]] = {}
    for at, value in inputs:
        grouped.setdefault(plan.edges[at].target_handle, []).append(value)
    return grouped


async def with_inputs(reader: NodeTaskReader, assignment: Assignment, plan: Plan) -> Assignment:
    """Return an assignment with all its values. Raises InputsTooLarge."""
    inputs = assignment.inputs
    if assignment.inputs_outside:
        (task,) = await reader.tasks([assignment.task_id], inputs=True)
        inputs = task.inputs if task else ()
    run = RunName.of_node_task(assignment.task_id)
    return structs.replace(assignment, inputs=await read_inputs(reader, run, plan, inputs), inputs_outside=False)


async def read_inputs(
    reader: NodeTaskReader, run: RunName, plan: Plan, pairs: Inputs, limit: int = MAX_INPUT_BYTES
) -> Inputs:
    """Return input values after reading those that stayed with their sources, a few at a time.

    Raises InputsTooLarge as soon as all together exceed `limit` bytes.
    """
    size = sum(size_of(value) for _, value in pairs)
    found: dict[int, str] = {}
    for first in range(0, len(pairs), 16):
        wanted = [at for at, value in pairs[first : first + 16] if value == ELSEWHERE]
        sources = [
            (run.task_id(plan.nodes[plan.edges[at].source].node_id), plan.edges[at].source_handle) for at in wanted
        ]
        for at, value in zip(wanted, await reader.outputs(sources) if sources else (), strict=True):
            found[at] = "null" if value is None else value
            size += len(found[at].encode())
        if size > limit:
            raise InputsTooLarge(size)
    return tuple((at, found.get(at, value)) for at, value in pairs)
