"""Reading ad-hoc tasks and batches, cancelling them, and deleting batches."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from tradewind.node_task_manager.domain.batch import (
    ONLY_COMPONENT,
    BatchProgress,
    BatchStatus,
    Deletion,
    batch_status,
)
from tradewind.node_task_manager.domain.component import Component
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName, TaskName
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.ports.workers import NodeTypes
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.node_task_records import ANSWER_BYTES, Lines, NodeTaskRecords
from tradewind.node_task_manager.use_cases.shard import of_user
from tradewind.node_task_manager.use_cases.task_views import TaskView
from tradewind.server.faults import FailedPrecondition, NotFound
from tradewind.server.paging import Page


class Position(NamedTuple):
    """A place in a list: when a run was submitted (epoch ms), and its name."""

    submitted_at: int
    run: str


_ROUNDS = 20
"""How many reads may fill a page with runs of the wanted status before a short page is returned."""
_AT_ONCE = 50
"""How many tasks are read side by side."""
_WAITING = (NodeTaskStatus.REGISTERED, NodeTaskStatus.PENDING)


class AdHoc:
    """Tasks and batches that users submitted outside flows; users see only their own."""

    def __init__(
        self, dispatchers: Mapping[int, Dispatcher], records: NodeTaskRecords, node_types: NodeTypes, limits: Limits
    ) -> None:
        self._dispatchers = dispatchers
        self._records = records
        self._node_types = node_types
        self._mark_ms = limits.tombstone_ms

    async def task(self, task_id: str, user_id: str, *, outputs: bool = False) -> TaskView:
        """Return a task, with what it waits for, if it does. Raises NotFound."""
        view = await self._records.ad_hoc_task(TaskName.parse(task_id), user_id, outputs=outputs)
        if view.component.user_id != user_id:
            raise NotFound("node task", task_id)
        return await self._with_wait_reason(view)

    async def batch(self, batch_id: str, user_id: str) -> Component:
        """Return the component of a batch. Raises NotFound."""
        reader = self._records.shard(user_id).reader
        (component,) = await reader.components([(RunName.of_batch(batch_id), ONLY_COMPONENT)])
        if component is None or component.user_id != user_id:
            raise NotFound("batch", batch_id)
        return component

    async def wait_reason(self, batch: Component) -> str:
        """Return what queued items of a batch wait for, "" when none is queued."""
        if not BatchProgress.of(batch).queued:
            return ""
        # If any item waits, the last one does, unless it was tried before others.
        last = await self._records.node_task(batch.run.task_id(str(batch.nodes - 1)), batch.user_id)
        reason = last.task.status in _WAITING and last.wait_reason
        return reason or await self._queue_reason(batch.node_type)

    async def _queue_reason(self, node_type: str) -> str:
        if await self._node_types.offered(node_type) is False:
            return f'no live worker offers node type "{node_type}"'
        return f'waits for a worker that offers "{node_type}" to have room'

    async def tasks(
        self, user_id: str, statuses: Collection[NodeTaskStatus], after: Position | None, limit: int
    ) -> tuple[list[TaskView], Position | None]:
        """Return tasks of a user, newest first, and where the next page begins, None for the end.

        With `statuses`, only tasks in one of them. A page may then be short, as it may when errors are long.
        """
        reader = self._records.shard(user_id).reader
        page: Page[TaskView] = Page(limit, ANSWER_BYTES)
        only_open = _are_open(statuses)
        for _ in range(_ROUNDS):
            components, after = await self._page(user_id, "task", after, limit - len(page.items), only_open)
            tasks = await reader.tasks([str(component.run) for component in components])
            wanted = [
                (task, component)
                for task, component in zip(tasks, components, strict=True)
                if task is not None and (not statuses or task.status in statuses)
            ]
            for first in range(0, len(wanted), _AT_ONCE):
                some = wanted[first : first + _AT_ONCE]
                for view in await asyncio.gather(*(self._listed(*each) for each in some)):
                    if not page.add(view, view.size()):
                        last = page.items[-1].component
                        return page.items, Position(last.submitted_at, str(last.run))
            if after is None or len(page.items) == limit:
                break
        return page.items, after

    async def _listed(self, task: NodeTask, component: Component) -> TaskView:
        """Return a task as a list shows it; the plan is needed only to say what it waits for."""
        if task.status in _WAITING:
            return await self.task(task.task_id, component.user_id)
        return TaskView(task, component, Plan(component.plan, (PlanNode("", component.node_type),), ()))

    async def batches(
        self, user_id: str, statuses: Collection[BatchStatus], after: Position | None, limit: int
    ) -> tuple[list[Component], Position | None]:
        """Return batches of a user, as `tasks` does."""
        found: list[Component] = []
        only_open = _are_open(statuses)
        for _ in range(_ROUNDS):
            components, after = await self._page(user_id, "batch", after, limit - len(found), only_open)
            found += [each for each in components if not statuses or batch_status(each) in statuses]
            if after is None or len(found) == limit:
                break
        return found, after

    async def results(
        self, batch_id: str, user_id: str, after: int, limit: int, *, outputs: bool, config: bool
    ) -> tuple[list[TaskView], int]:
        """Return items of a batch from place `after` on, as NodeTaskRecords.node_tasks does. Raises NotFound."""
        batch = await self.batch(batch_id, user_id)
        views, following = await self._records.node_tasks(
            batch.run, user_id, after, limit, outputs=outputs, config=config
        )
        return [await self._with_wait_reason(each) for each in views], following

    async def cancel_task(self, task_id: str, user_id: str, reason: str, by: str) -> TaskView:
        """Skip a task that has not begun, or ask a running one to stop; return its new state. Raises NotFound."""
        view = await self.task(task_id, user_id)
        await self._stop(view.component, reason, by)
        return await self.task(task_id, user_id)

    async def cancel_batch(self, batch_id: str, user_id: str, reason: str, by: str) -> Component:
        """Skip items that have not begun, ask running ones to stop; return the batch's new state. Raises NotFound."""
        await self._stop(await self.batch(batch_id, user_id), reason, by)
        return await self.batch(batch_id, user_id)

    async def delete_batch(self, batch_id: str, user_id: str) -> None:
        """Remove a batch that has ended. Raises NotFound, and FailedPrecondition while an item has not ended."""
        tasks = of_user(self._dispatchers, user_id).shard.tasks
        match await tasks.delete_batch(RunName.of_batch(batch_id), user_id):
            case Deletion.UNKNOWN:
                raise NotFound("batch", batch_id)
            case Deletion.OPEN:
                message = f"batch {batch_id} has not ended; cancel it first, and delete it once its last item has ended"
                raise FailedPrecondition("WRONG_STATUS", message, f"batches/{batch_id}")

    async def lines(self, run: RunName, user_id: str, after: str, limit: int) -> Lines:
        """Return log lines of a task or a batch, as NodeTaskRecords.lines does. Raises NotFound."""
        if run.batch_id:
            await self.batch(run.batch_id, user_id)
        else:
            await self.task(str(run), user_id)
        return await self._records.lines(run, user_id, after, limit)

    async def _stop(self, component: Component, reason: str, by: str) -> None:
        dispatcher = of_user(self._dispatchers, component.user_id)
        stop = dispatcher.shard.tasks.stop
        dispatcher.apply(await stop(component.run, component.run_id, "", reason, by, self._mark_ms))
        dispatcher.request_claim()

    async def _page(
        self, user_id: str, kind: str, after: Position | None, limit: int, only_open: bool
    ) -> tuple[list[Component], Position | None]:
        """Return components of listed runs, without those whose records have gone meanwhile."""
        reader = self._records.shard(user_id).reader
        listed = await reader.runs_of(user_id, kind, after, limit, only_open=only_open)
        names = [(RunName("", 0, 0, name), ONLY_COMPONENT) for _, name in listed]
        found = [component for component in await reader.components(names) if component is not None]
        return found, Position(*listed[-1]) if len(listed) == limit else None

    async def _with_wait_reason(self, view: TaskView) -> TaskView:
        if view.task.status not in _WAITING or view.wait_reason:
            return view
        return replace(view, wait_reason=await self._queue_reason(view.component.node_type))


def _are_open(statuses: Collection[NodeTaskStatus | BatchStatus]) -> bool:
    """Say whether only what has not ended has one of these statuses; empty means any status."""
    return bool(statuses) and not any(status.terminal for status in statuses)
