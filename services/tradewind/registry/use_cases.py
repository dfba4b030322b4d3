"""The use cases of the registry: one function for each, raising the faults that callers see."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from tradewind.registry.domain.built_in import BUILT_IN
from tradewind.registry.domain.limits import Limits
from tradewind.registry.domain.node_type import NodeType, NodeTypeRecord
from tradewind.registry.domain.validation import node_type_violations, worker_violations
from tradewind.registry.domain.worker import HeartbeatAnswer, Worker, WorkerRecord
from tradewind.registry.ports import NodeTypeStore, Refusal, WorkerStore
from tradewind.server.faults import Exhausted, FailedPrecondition, InvalidInput, NotFound, Violation
from tradewind.server.identifiers import check_identifier, require_identifiers
from tradewind.server.json_schema import schema_fault

_RETRY_WHEN_FULL_S = 60.0


async def register_worker(
    workers: WorkerStore, catalogue: NodeTypeStore, worker: Worker, node_types: Sequence[NodeType], limits: Limits
) -> tuple[WorkerRecord, list[str]]:
    """Put a worker on record, offering `node_types`; return it as it is on record, and warnings about the node types.

    Raises InvalidInput with every fault, FailedPrecondition when a newer incarnation has registered, Exhausted when the
    registry is full.
    """
    # A worker offers exactly the node types that it declares; the names it sent are ignored.
    worker = replace(worker, node_types=())
    if violations := [*worker_violations(worker, limits), *node_type_violations(node_types, limits, schema_fault)]:
        raise InvalidInput(violations)
    worker = replace(worker, node_types=tuple(node_type.name for node_type in node_types))
    warnings = await _declared_otherwise(catalogue, worker.worker_id, node_types)
    record = await workers.register(worker, node_types)
    if isinstance(record, Refusal):
        _refuse(record, worker, limits)
    return record, warnings


async def heartbeat(workers: WorkerStore, worker: Worker, limits: Limits, *, draining: bool = False) -> HeartbeatAnswer:
    """Note that a worker is alive, and whether it has begun to leave.

    Raises InvalidInput with every fault, Exhausted when the registry is full.
    """
    if violations := worker_violations(worker, limits):
        raise InvalidInput(violations)
    answer = await workers.heartbeat(worker, draining=draining)
    if isinstance(answer, Refusal):
        _refuse(answer, worker, limits)
    return answer


async def drain_worker(workers: WorkerStore, worker_id: str) -> WorkerRecord:
    """Mark a worker as draining, so that it takes no new work. Raises NotFound, InvalidInput for an illegal id."""
    require_identifiers(worker_id=worker_id)
    record = await workers.drain(worker_id)
    if record is None:
        raise NotFound("worker", worker_id)
    return record


async def deregister_worker(workers: WorkerStore, worker_id: str, incarnation: str) -> bool:
    """Delete a worker's record, with `incarnation` only that one's; return whether one was. Raises InvalidInput."""
    require_identifiers(worker_id=worker_id)
    return await workers.deregister(worker_id, incarnation)


async def get_worker(workers: WorkerStore, worker_id: str) -> WorkerRecord:
    """Return a worker, even one that is offline. Raises NotFound, InvalidInput for an illegal id."""
    require_identifiers(worker_id=worker_id)
    record = await workers.find(worker_id)
    if record is None:
        raise NotFound("worker", worker_id)
    return record


async def available_workers(workers: WorkerStore, node_type: str, limit: int, limits: Limits) -> Sequence[WorkerRecord]:
    """Return up to `limit` workers (100 for 0) that can run a node type, least loaded first. Raises InvalidInput."""
    violations = [check_identifier("node_type", node_type)]
    if limit < 0:
        violations.append(Violation("limit", f"must not be negative, is {limit}"))
    if found := [violation for violation in violations if violation]:
        raise InvalidInput(found)
    return await workers.available(node_type, min(limit or limits.available, limits.max_available))


async def find_node_types(catalogue: NodeTypeStore, names: Sequence[str], limits: Limits) -> Sequence[NodeTypeRecord]:
    """Return those of the named node types that are declared, each once, in the order of the names.

    Raises InvalidInput when they are too many, or too large together, for one answer.
    """
    if len(names) > limits.named_node_types:
        raise InvalidInput([Violation("types", f"name at most {limits.named_node_types} at once, not {len(names)}")])
    wanted = list(dict.fromkeys(names))
    records = await catalogue.find(wanted)
    if records is None:
        message = f"together their declarations have more than {limits.answer_bytes} bytes: name fewer at once"
        raise InvalidInput([Violation("types", message)])
    found = {record.node_type.name: record for record in records} | BUILT_IN
    return [found[name] for name in wanted if name in found]


async def get_node_type(catalogue: NodeTypeStore, name: str) -> NodeTypeRecord:
    """Return one node type. Raises NotFound, InvalidInput for an illegal name."""
    require_identifiers(type=name)
    if name in BUILT_IN:
        return BUILT_IN[name]
    records = await catalogue.find([name])
    if not records:
        raise NotFound("node type", name, metadata={"node_type": name})
    return records[0]


async def _declared_otherwise(catalogue: NodeTypeStore, worker_id: str, node_types: Sequence[NodeType]) -> list[str]:
    """Return a warning for each of these node types that other live workers offer and that is declared differently."""
    declared = {node_type.name: node_type for node_type in node_types}
    warnings = []
    # Of two workers, one is another: a thousand names for each type would cost a worker's start most of its time.
    for record in await catalogue.find(list(declared), offering=2) or ():
        name, others = record.node_type.name, [each for each in record.worker_ids if each != worker_id]
        if others and not record.node_type.fits(declared[name]):
            warnings.append(
                f'worker "{others[0]}" declares node type "{name}" differently: nodes may go to either, and flows are '
                "checked against the declaration that came last"
            )
    return warnings


def _refuse(refusal: Refusal, worker: Worker, limits: Limits) -> NoReturn:
    if refusal is Refusal.REPLACED:
        raise FailedPrecondition(
            "SESSION_REPLACED",
            f'a newer process has registered as worker "{worker.worker_id}": end this one, or give it another id',
            f"workers/{worker.worker_id}",
            {"worker_id": worker.worker_id},
        )
    message = f"{limits.workers} workers are on record, which is the limit; new ones are accepted once some have lapsed"
    if refusal is Refusal.TOO_MANY_NODE_TYPES:
        message = (
            f"at most {limits.node_types} node types may be declared, and these would exceed that; declare fewer, or "
            "wait until unused ones have lapsed"
        )
    raise Exhausted("QUEUE_FULL", message, _RETRY_WHEN_FULL_S)
