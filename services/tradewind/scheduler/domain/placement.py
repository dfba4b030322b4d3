"""The workers that could run the nodes of a flow now."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tradewind.scheduler.domain.node_definition import NodeDefinition
from tradewind.server.built_in import BUILT_IN


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A live worker; a draining worker takes no work."""

    worker_id: str
    node_types: frozenset[str]
    capacity: int
    running: int
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """The workers that offer a node type and take work, and their slots, shared by all their types."""

    node_type: str
    node_count: int
    worker_ids: tuple[str, ...]
    slots: int
    free_slots: int
    draining: int


def placements(nodes: Sequence[NodeDefinition], workers: Iterable[WorkerView]) -> tuple[Placement, ...]:
    """Return the workers that could run the nodes, by type, in the order in which types first appear in the flow.

    Built-in types need no worker and are left out.
    """
    counts = Counter(node.node_type for node in nodes if node.node_type not in BUILT_IN)
    offering: dict[str, list[WorkerView]] = {node_type: [] for node_type in counts}
    for worker in workers:
        for node_type in worker.node_types & offering.keys():
            offering[node_type].append(worker)
    return tuple(_placement(node_type, count, offering[node_type]) for node_type, count in counts.items())


def _placement(node_type: str, count: int, workers: Sequence[WorkerView]) -> Placement:
    taking = [worker for worker in workers if not worker.draining]
    return Placement(
        node_type,
        count,
        tuple(worker.worker_id for worker in taking),
        sum(worker.capacity for worker in taking),
        sum(max(0, worker.capacity - worker.running) for worker in taking),
        len(workers) - len(taking),
    )
