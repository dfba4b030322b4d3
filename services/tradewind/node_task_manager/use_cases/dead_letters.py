"""Reading node tasks that were given up, and running their work once more."""

from collections.abc import Mapping, Sequence

from tradewind.node_task_manager.domain.ad_hoc import AdHocWork
from tradewind.node_task_manager.domain.names import TaskName
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.node_task_manager.use_cases.ad_hoc import Position
from tradewind.node_task_manager.use_cases.node_task_records import ANSWER_BYTES, NodeTaskRecords
from tradewind.node_task_manager.use_cases.submit_ad_hoc import SubmitAdHoc
from tradewind.node_task_manager.use_cases.task_views import TaskView
from tradewind.server.faults import FailedPrecondition, NotFound
from tradewind.server.paging import Page

_AT_ONCE = 50
"""How many node tasks are read at once; each may have a long error."""


class DeadLetters:
    """Dead letters; users see and redrive only their own."""

    def __init__(self, records: NodeTaskRecords, submit: SubmitAdHoc) -> None:
        self._records = records
        self._submit = submit

    async def page(self, user_id: str, after: Position | None, limit: int) -> tuple[list[TaskView], Position | None]:
        """Return dead letters, newest first, and where the next page begins, None for the end.

        Dead letters whose records have gone meanwhile are left out.
        """
        listed = await self._records.shard(user_id).reader.dead_letters(user_id, after, limit)
        page: Page[TaskView] = Page(limit, ANSWER_BYTES)
        for first in range(0, len(listed), _AT_ONCE):
            some = listed[first : first + _AT_ONCE]
            found = await self._records.on_record([task_id for _, task_id in some], user_id)
            for at, (_, task_id) in enumerate(some, first):
                view = found.get(task_id)
                if view is not None and not page.add(view, view.size()):
                    return page.items, Position(*listed[at - 1])
        return page.items, Position(*listed[-1]) if len(listed) == limit else None

    async def redrive(self, user_id: str, task_ids: Sequence[str], traceparent: str = "") -> list[tuple[str, str]]:
        """Submit the work of dead letters again, as ad-hoc tasks in the trace `traceparent`.

        Returns pairs of old and new ids, in order.

        The same dead letter gets the same task each time. Raises NotFound, or FailedPrecondition for a node task that
        did not fail or that is a node of a flow; then nothing is submitted.
        """
        found = await self._records.on_record(task_ids, user_id)
        letters = [await self._letter(task_id, user_id, found) for task_id in task_ids]
        redriven = []
        for view in letters:
            accepted = await self._submit(_work(view, traceparent), require_worker=False)
            await self._records.shard(user_id).tasks.unlist_dead_letter(user_id, view.task.task_id)
            redriven.append((view.task.task_id, str(accepted.run)))
        return redriven

    async def _letter(self, task_id: str, user_id: str, found: Mapping[str, TaskView]) -> TaskView:
        view = found.get(task_id) or await self._records.node_task(task_id, user_id)
        if view.component.user_id != user_id:
            raise NotFound("node task", task_id)
        run = TaskName.parse(task_id).run
        if not run.ad_hoc:
            raise FailedPrecondition(
                "WRONG_STATUS",
                f'"{task_id}" is a node of cycle {run.cycle} of flow "{run.flow_id}": rerun that cycle; a node of a '
                "cycle cannot be run on its own",
                f"node_tasks/{task_id}",
            )
        if view.task.status is not NodeTaskStatus.FAILED:
            message = f'"{task_id}" is {view.task.status}, so it is not a dead letter'
            raise FailedPrecondition("WRONG_STATUS", message, f"node_tasks/{task_id}")
        return view


def _work(view: TaskView, traceparent: str) -> AdHocWork:
    """Return the work of a node task, under a request id derived from its id and end.

    Another one may have had the id before: an item of a batch that was deleted, say.
    """
    node = view.node
    return AdHocWork(
        user_id=view.component.user_id,
        node_type=node.node_type,
        parameters=(node.config_json,),
        request_id=f"redrive:{view.task.task_id}:{view.task.ended_at}",
        schedule_to_start_ms=node.schedule_to_start_ms,
        start_to_close_ms=node.start_to_close_ms,
        heartbeat_ms=node.heartbeat_ms,
        total_ms=node.total_ms,
        retry=node.retry,
        priority=node.priority,
        concurrency=node.concurrency,
        rate=node.rate,
        traceparent=traceparent,
        cache=node.cache,
    )
