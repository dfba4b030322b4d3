"""Completing assignments with the values of their input handles."""

from collections.abc import Sequence
from dataclasses import dataclass

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

MAX_INPUT_BYTES = 3 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TooLarge:
    """An assignment whose inputs exceed the limit together."""

    assignment: Assignment
    size: int

    def outcome(self) -> Outcome:
        """Return the failure of its node task."""
        limit = MAX_INPUT_BYTES // 1024 // 1024
        message = f"the inputs have at least {self.size} bytes in total, the limit is {limit} MiB"
        return _failed(self.assignment, "INPUT_TOO_LARGE", message)


class UnknownHandle(LookupError):
    """An edge leaves the node by an output handle that its type does not have."""


def unassignable_outcome(given: Assignment, error: LookupError) -> Outcome:
    """Return the failure of a node task that no worker can get: an edge leaves by an unknown handle, the plan is gone,
    or another plan has the same digest."""
    if isinstance(error, UnknownHandle):
        return _failed(given, "UNKNOWN_HANDLE", str(error))
    message = f"plan {given.plan} is gone, or is not the plan of this node task: each plan needs its own digest"
    return _failed(given, "INTERNAL", message)


def _failed(given: Assignment, code: str, message: str) -> Outcome:
    error = TaskError(code, message)
    return Outcome(given.task_id, given.attempt, given.nonce, OutcomeKind.FAILED, (), error, RetryRequest(none=True))


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
    by_handle: dict[str, list[str]] = {}
    for at, value in assignment.inputs:
        by_handle.setdefault(plan.edges[at].target_handle, []).append(value)
    return Ready(
        shard,
        assignment,
        RunName.of_node_task(assignment.task_id),
        plan.nodes[assignment.index],
        tuple(by_handle.items()),
        eager_steps(plan, assignment.index, eager_types) if eager_types and not wrong else NONE,
    )


async def read_inputs(
    reader: NodeTaskReader, assignment: Assignment, plan: Plan, limit: int = MAX_INPUT_BYTES
) -> Assignment | TooLarge:
    """Read the values that stayed with their sources, a few at a time, until all together exceed `limit` bytes."""
    run = RunName.of_node_task(assignment.task_id)
    if assignment.inputs_outside:
        (task,) = await reader.tasks([assignment.task_id], inputs=True)
        pairs: Sequence[tuple[int, str]] = task.inputs if task else ()
    else:
        pairs = assignment.inputs
    size = sum(len(value) if value.isascii() else len(value.encode()) for _, value in pairs)
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
            return TooLarge(assignment, size)
    inputs = tuple((at, found.get(at, value)) for at, value in pairs)
    return structs.replace(assignment, inputs=inputs, inputs_outside=False)
