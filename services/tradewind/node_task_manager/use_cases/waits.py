"""Why a ready node task waits, in words: which limit holds it back, or that nobody runs it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tradewind.node_task_manager.domain.concurrency import limit_text
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.connected import ConnectedWorkers, LastOffer
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.node_task_manager.use_cases.task_views import TaskView
from tradewind.server.reasons import Reason, iso, no_live_worker


class ExplainPending:
    """Says of pending node tasks which limit is full, or that no connected worker offers their type; `config(shard)`
    returns the configuration of a shard."""

    def __init__(self, config: Callable[[int], SystemConfig], connected: ConnectedWorkers) -> None:
        self._config = config
        self._connected = connected

    async def __call__(self, shard: Shard, views: Sequence[TaskView]) -> list[TaskView]:
        """Return the same node tasks with what they wait for, unless that is only their turn or a worker's room."""
        config = self._config(shard.number)
        names: dict[str, int] = {}
        for each in views:
            if each.task.status is NodeTaskStatus.PENDING and not each.task.blocked and not each.is_mapped:
                names.update(limits_of(each, config))
        held = dict(zip(names, await shard.queues.held(list(names)), strict=True)) if names else {}
        full = {name for name, most in names.items() if held[name] >= most}
        explained = [replace(each, wait_reason=_limit_reason(each, config, full) or each.wait_reason) for each in views]
        queued = {each.node.node_type for each in explained if _is_queued(each)}
        unoffered = await self._connected.unoffered(sorted(queued)) if queued else {}
        return [
            replace(each, wait_reason=no_worker_reason(each.node.node_type, unoffered[each.node.node_type]).sentence)
            if _is_queued(each) and each.node.node_type in unoffered
            else each
            for each in explained
        ]


def no_worker_reason(node_type: str, last: LastOffer) -> Reason:
    """Return the reason that no connected worker offers a node type."""
    return no_live_worker(node_type, last_worker=last.worker_id, until=iso(last.until_ms))


def limits_of(each: TaskView, config: SystemConfig) -> dict[str, int]:
    """Return the system's limits that apply to a node task, the narrowest first."""
    node_type = each.node.node_type
    limits = {
        f"user:{each.component.user_id}": config.max_running_per_user,
        f"type:{node_type}": config.max_running_per_node_type.get(node_type, 0),
        "running": config.max_running,
    }
    rate = config.rates.get(node_type)
    if rate is not None:
        # A bucket has no token left when filling it takes longer than filling in all but one of its tokens.
        limits[f"rate:{node_type}"] = rate.period_us - rate.interval_us + 1
    return {name: most for name, most in limits.items() if most}


def _is_queued(each: TaskView) -> bool:
    """Say whether it lacks only a worker to take it."""
    pending = each.task.status is NodeTaskStatus.PENDING and not each.task.retry_at
    return pending and not each.wait_reason and not each.is_mapped


def _limit_reason(each: TaskView, config: SystemConfig, full: set[str]) -> str:
    if each.task.status is not NodeTaskStatus.PENDING or each.is_mapped:
        return ""
    reason = each.task.blocked or next((name for name in limits_of(each, config) if name in full), "")
    return f"waits: {limit_text(reason)}" if reason else ""
