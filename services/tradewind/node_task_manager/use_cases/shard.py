"""A shard as this process sees it: its number and its stores; and what belongs to which shard."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tradewind.node_task_manager.ports.events import EventLog, Notices
from tradewind.node_task_manager.ports.node_tasks import NodeTaskStore
from tradewind.node_task_manager.ports.plans import PlanStore
from tradewind.node_task_manager.ports.reading import NodeTaskReader, QueueReader
from tradewind.server.partitions import shard_of

Item = TypeVar("Item")


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


def of_user(all_shards: Mapping[int, Item], user_id: str) -> Item:
    """Return what stands for the shard of a user."""
    return all_shards[shard_of(user_id, len(all_shards))]


def by_shard(items: Iterable[tuple[int, Item]]) -> dict[int, list[Item]]:
    """Group items, each given with its shard, by shard."""
    grouped: dict[int, list[Item]] = {}
    for number, item in items:
        grouped.setdefault(number, []).append(item)
    return grouped
