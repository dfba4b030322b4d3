"""What must hold for mapped nodes and their items in the raw keys of a shard."""

from collections import defaultdict

from tests.stores.node_task_manager.raw_keys import Keys
from tradewind.node_task_manager.domain.names import TaskName

OPEN = ("pending", "running", "suspended")
CANCELLED = ("terminated", "skipped")


def check_items(keys: Keys) -> None:
    """Items begin in order, no more than allowed are ready or running, and each is counted once by how it ended."""
    items: dict[str, dict[int, str]] = defaultdict(dict)
    for task_id, task in keys.tasks.items():
        name = TaskName.parse(task_id)
        if name.item >= 0:
            items[name.mapped][name.item] = task["status"]
    for task_id, task in keys.tasks.items():
        if "items_total" not in task:
            assert task_id not in items, f"{task_id} has items and was never split"
            assert task_id not in keys.lists, task_id
            continue
        total, need, begun, completed, failed, cancelled = (
            int(task[f"items_{name}"]) for name in ("total", "need", "begun", "completed", "failed", "cancelled")
        )
        found = items.pop(task_id, {})
        assert sorted(found) == list(range(begun)), (task_id, found, task)
        statuses = list(found.values())
        running = sum(status in OPEN for status in statuses)
        most = keys.node(task, task_id.rpartition(":")[0])["map"]["most"]
        assert running <= most, (task_id, found)
        assert statuses.count("completed") == completed, (task_id, found, task)
        assert statuses.count("failed") == failed, (task_id, found, task)
        assert sum(status in CANCELLED for status in statuses) == cancelled, (task_id, found, task)
        halted = "items_halt" in task or "stop" in task
        if task["status"] == "running":
            assert keys.lists.get(task_id, 0) == total - begun, (task_id, task)
            stopping = "stop" in keys.owner(task, task_id)
            assert halted or stopping or running == min(most, total - completed - failed - cancelled), (task_id, found)
            # Either items are open, or the node is offered to be joined.
            assert running or stopping or int(task["retry_at"]), (task_id, task)
            continue
        assert not running, f"{task_id} has ended before its items"
        assert task_id not in keys.lists, task_id
        assert task["status"] != "completed" or (begun == total and completed >= need), (task_id, task)
        if task["status"] == "failed" and "items_code" in task:
            assert completed < need or task["items_code"] == "OUTPUT_TOO_LARGE", (task_id, task)
    assert not items, f"items without their mapped node: {dict(items)}"
