"""A shard as the process sees it: its number and its stores."""

from dataclasses import dataclass

from tradewind.node_task_manager.ports import EventLog, NodeTaskReader, NodeTaskStore, Notices, PlanStore, QueueReader


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
