"""Stopping node tasks, components and runs, releasing withheld components, and removing flows."""

from collections.abc import Mapping, Sequence

from tradewind.node_task_manager.domain.component import Release
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName, TaskName
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.node_task_records import NodeTaskRecords
from tradewind.node_task_manager.use_cases.shard import of_user
from tradewind.node_task_manager.use_cases.task_views import TaskView
from tradewind.server.clock import Clock
from tradewind.server.faults import FailedPrecondition


class ControlRuns:
    """Stops and releases in the shard of the user, removes from all shards, and notifies workers."""

    def __init__(
        self, dispatchers: Mapping[int, Dispatcher], records: NodeTaskRecords, limits: Limits, clock: Clock
    ) -> None:
        self._dispatchers = dispatchers
        self._records = records
        self._limits = limits
        self._clock = clock

    async def stop_component(
        self, run: RunName, run_id: str, user_id: str, component_id: str, *, reason: str, by: str, deadline_ms: int
    ) -> tuple[int, int]:
        """Stop a component, or the run with ""; return how many node tasks were skipped and how many asked to stop.

        The mark stays until 1 h after the deadline; without a deadline, 8 d.
        """
        left_ms = deadline_ms - self._clock.now_ms()
        mark_ms = max(left_ms, 0) + self._limits.tombstone_ms if deadline_ms else self._limits.run_retention_ms
        dispatcher = of_user(self._dispatchers, user_id)
        effects = await dispatcher.shard.tasks.stop(run, run_id, component_id, reason, by, mark_ms)
        dispatcher.apply(effects)
        skipped, terminating = effects.results
        return int(skipped), int(terminating)

    async def release_components(self, run: RunName, run_id: str, user_id: str, releases: Sequence[Release]) -> None:
        """Let withheld components begin, or skip them."""
        dispatcher = of_user(self._dispatchers, user_id)
        dispatcher.apply(await dispatcher.shard.tasks.release(run, run_id, releases))

    async def terminate_node_task(self, task_id: str, user_id: str, reason: str, by: str) -> TaskView:
        """Stop one node task and return its new state.

        Raises NotFound, and FailedPrecondition for an item of a mapped node that has not begun.
        """
        view = await self._records.node_task(task_id, user_id)
        dispatcher = of_user(self._dispatchers, user_id)
        effects = await dispatcher.shard.tasks.terminate(task_id, view.task.component_id, view.task.index, reason, by)
        dispatcher.apply(effects)
        name = TaskName.parse(task_id)
        if effects.results == ("unknown",) and name.item >= 0 and not view.task.status.terminal:
            message = f'item {name.item} of node "{name.node_id}" has not begun; stop the node to stop it as well'
            raise FailedPrecondition("WRONG_STATUS", message, f"node_tasks/{task_id}")
        return await self._records.node_task(task_id, user_id)

    async def purge_flow(self, flow_id: str, schedule_epoch: int) -> tuple[bool, int]:
        """Remove a bounded part of a flow; return whether all of it is gone, and how many records were removed.

        `schedule_epoch` tells it from a later flow of its name, 0 for whatever has the name. Earlier owners of the flow
        may have begun runs in other shards.
        """
        done, removed = True, 0
        for dispatcher in self._dispatchers.values():
            purge = await dispatcher.shard.tasks.purge(flow_id, schedule_epoch)
            dispatcher.apply(purge.effects)
            done, removed = done and purge.done, removed + purge.removed
        return done, removed
