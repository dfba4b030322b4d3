"""A shard as this process sees it: its number and its stores."""

from dataclasses import dataclass

from tradewind.node_task_manager.ports.events import EventLog, Notices
from tradewind.node_task_manager.ports.node_tasks import NodeTaskStore
from tradewind.node_task_manager.ports.reading import NodeTaskReader, QueueReader
from tradewind.node_task_manager.ports.settings import PlanStore


@dataclass(frozen=True, slots=True)
class Shard:
    """The stores of one shard."""

    number: int
    tasks: NodeTaskStore
    reader: NodeTaskReader
    plans: PlanStore
    events: EventLog
    queues: QueueReader
    notices: Notices
