"""What explaining needs from other services."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTask
from tradewind.scheduler.ports.peers import NodeTasks
from tradewind.server.reasons import Reason


@dataclass(frozen=True, slots=True)
class KnownWorker:
    """A worker on record that offers a node type, or did so when it was last seen."""

    worker_id: str
    capacity: int
    running: int
    alive: bool
    draining: bool
    last_heartbeat_ms: int


class NodeTaskReasons(NodeTasks, Protocol):
    """The node task manager, with what it knows about the reasons why a node task has its status."""

    async def explain(self, node_task_id: str, user_id: str) -> tuple[NodeTask, list[Reason]] | None:
        """Return a node task and the reasons for its status; None when it is not known."""
        ...

    async def connected(self, worker_ids: Sequence[str]) -> Collection[str] | None:
        """Return which of these workers are connected; None when that is not known."""
        ...


class WorkerRecords(Protocol):
    """The workers on record, including those that have been gone for less than a day."""

    async def workers(self, node_type: str) -> list[KnownWorker] | None:
        """Return the workers that offer a node type, alive or still on record; None when nobody could be asked."""
        ...
