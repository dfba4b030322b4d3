"""Fan-out in memory: nodes that run once for each item of a list."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from tradewind.node_task_manager.domain.fan_out import (
    INLINE_BYTES,
    TOO_FEW,
    TOO_LARGE,
    FanOutOffer,
    FanOutStep,
    StepKind,
)
from tradewind.node_task_manager.domain.item_counts import ItemCounts
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.node_task import ELSEWHERE, NodeTask, NodeTaskStatus, StopMark, TaskError
from tradewind.node_task_manager.domain.task_event import TaskEventKind
from tradewind.node_task_manager.ports.work import Effects, Vacancy
from tradewind.node_task_manager.stores.memory.call import Call
from tradewind.node_task_manager.stores.memory.claiming import MemoryClaiming
from tradewind.node_task_manager.stores.memory.notices import brief
from tradewind.node_task_manager.stores.memory.records import run_of, task_name
from tradewind.node_task_manager.stores.memory.replacing import replace


@dataclass
class Mapped:
    """A mapped node that has been split: its items that have not begun, why the rest is stopped, if it is, and the
    first item that did not complete, in words."""

    waiting: list[str]
    size: int = 0
    halt: StopMark | None = None
    code: str = ""
    first: str = ""


class MemoryFanOut(MemoryClaiming):
    """Handles mapped nodes and their items where they differ from other nodes."""

    def __init__(self, limits: Limits, clock: Callable[[], int]) -> None:
        super().__init__(limits, clock)
        self._mapped: dict[str, Mapped] = {}
        self._offers: list[FanOutOffer] = []

    def _forget_run(self, name: str) -> int:
        self._mapped = {task_id: mapped for task_id, mapped in self._mapped.items() if run_of(task_id) != name}
        return super()._forget_run(name)

    async def fan_out(self, steps: Sequence[FanOutStep], vacancies: Sequence[Vacancy] = ()) -> Effects:
        call = Call()
        for step in steps:
            call.results.append(self._carry_out(step, call))
        return self._conclude(call, vacancies)

    def _carry_out(self, step: FanOutStep, call: Call) -> str:
        task = self._tasks.get(step.task_id)
        if task is None:
            return "no such node task"
        if task.status.terminal:
            return f"the node task is {task.status}"
        if task.nonce != step.nonce:
            return "a newer offer was made"
        if self._components[self._owner(task)].stop is not None:
            return "the component is being stopped"
        task = self._withdraw(task)
        if task.status is NodeTaskStatus.PENDING:
            task = replace(task, status=NodeTaskStatus.RUNNING, started_at=self._clock())
            self._add_event(task, TaskEventKind.RUNNING)
        if step.kind is StepKind.SPLIT:
            self._mapped[task.task_id] = Mapped(list(step.items))
            self._tasks[task.task_id] = replace(task, items=ItemCounts(len(step.items), step.need))
            call.work.append((self._owner(task), partial(self._fill, task.task_id)))
        elif step.error is not None:
            self._log_error(task, step.error)
            self._finish(replace(task, error=step.error), NodeTaskStatus.FAILED, "", call)
        else:
            emitted = tuple(handle for handle, _ in step.outputs)
            self._finish(replace(task, outputs=step.outputs, emitted=emitted), NodeTaskStatus.COMPLETED, "", call)
        return ""

    def _is_mapped(self, task: NodeTask) -> bool:
        """Whether this is a mapped node's own node task."""
        return self._node(task).fan_out is not None and task_name(task.task_id).item < 0

    def _conclude(self, call: Call, vacancies: Sequence[Vacancy] = ()) -> Effects:
        effects = super()._conclude(call, vacancies)
        offers, self._offers = self._offers, []
        return structs.replace(effects, fan_outs=tuple(offers))

    def _enqueue(self, task: NodeTask) -> None:
        if not self._is_mapped(task):
            super()._enqueue(task)
            return
        if task.status is not NodeTaskStatus.RUNNING:
            if task.status is not NodeTaskStatus.PENDING:
                task = replace(task, ready_at=self._clock())
                self._add_event(task, TaskEventKind.QUEUED)
            task = replace(task, status=NodeTaskStatus.PENDING)
        self._offer(task)

    def _offer(self, task: NodeTask) -> None:
        at = self._clock() + self._limits.fan_out_lease_ms
        task = replace(task, nonce=f"m{next(self._numbers):x}", retry_at=at)
        self._tasks[task.task_id] = task
        self._delayed[task.task_id] = at
        counts = task.items or ItemCounts(0, 0)
        losses = counts.failed + counts.cancelled
        run_id, plan = self._components[self._owner(task)].run_id, self._plan(task).digest
        self._offers.append(
            FanOutOffer(task.task_id, task.nonce, run_id, task.component_id, plan, task.index, counts.total, losses)
        )

    def _withdraw(self, task: NodeTask) -> NodeTask:
        self._delayed.pop(task.task_id, None)
        return replace(task, retry_at=0, nonce="")

    def _dequeue(self, task: NodeTask) -> NodeTask:
        return self._withdraw(task) if self._is_mapped(task) else super()._dequeue(task)

    def _fill(self, task_id: str) -> None:
        """Begin items while there is room."""
        task = self._tasks[task_id]
        if self._closed(task):
            return
        fan_out, plan, mapped = self._node(task).fan_out, self._plan(task), self._mapped[task_id]
        assert fan_out is not None
        edge = plan.mapped_edge(task.index)
        shared = [
            (at, value if len(value.encode()) <= INLINE_BYTES else ELSEWHERE) for at, value in task.inputs if at != edge
        ]
        while mapped.waiting and (counts := _counts(self._tasks[task_id])).open < fan_out.max_parallel:
            value = mapped.waiting.pop(0)
            item = self._create(self._owner(task), task.index, f"{task_id}:{counts.begun}")
            self._recount(task_id, begun=counts.begun + 1)
            self._enqueue(replace(item, inputs=tuple(sorted([*shared, (edge, value)]))))

    def _closed(self, task: NodeTask) -> bool:
        """Whether no more items of a mapped node may begin."""
        if task.status is not NodeTaskStatus.RUNNING or task.stop is not None:
            return True
        return self._mapped[task.task_id].halt is not None or self._components[self._owner(task)].stop is not None

    def _recount(self, task_id: str, **changed: int) -> ItemCounts:
        task = self._tasks[task_id]
        counts = replace(_counts(task), **changed)
        self._tasks[task_id] = replace(task, items=counts)
        return counts

    def _finish(self, task: NodeTask, status: NodeTaskStatus, reason: str, call: Call) -> None:
        name = task_name(task.task_id)
        if name.item < 0:
            if self._is_mapped(task):
                task = replace(task, nonce="")
            super()._finish(task, status, reason, call)
            return
        self._end(task, status, reason)
        counts, mapped = _counts(self._tasks[name.mapped]), self._mapped[name.mapped]
        if status is NodeTaskStatus.COMPLETED:
            counts = self._recount(name.mapped, completed=counts.completed + 1)
            mapped.size += sum(len(value.encode()) for _, value in task.outputs)
        else:
            if status is NodeTaskStatus.FAILED:
                counts = self._recount(name.mapped, failed=counts.failed + 1)
            else:
                counts = self._recount(name.mapped, cancelled=counts.cancelled + 1)
            mapped.first = mapped.first or f"item {name.item} ({status}): {_loss_reason(task, status, reason)}"
        owner = self._tasks[name.mapped]
        if mapped.halt is None and owner.stop is None:
            if counts.out_of_reach:
                self._halt(owner, TOO_FEW, call)
            elif mapped.size > self._limits.output_bytes:
                self._halt(owner, TOO_LARGE, call)
        if not self._closed(owner) and counts.begun < counts.total:
            call.work.append((self._owner(owner), partial(self._fill, owner.task_id)))
        elif not counts.open:
            self._conclude_items(owner, call)

    def _halt(self, owner: NodeTask, code: str, call: Call) -> None:
        mapped, node_id = self._mapped[owner.task_id], self._node(owner).node_id
        mapped.code, reason = code, f'too few items of node "{node_id}" can complete'
        if code == TOO_LARGE:
            reason = f'the combined results of the items of node "{node_id}" are too large'
        mapped.halt = StopMark(reason, "system", self._clock())
        call.work.append((self._owner(owner), partial(self._stop_items, owner.task_id, call)))

    def _conclude_items(self, owner: NodeTask, call: Call) -> None:
        """Go on once all items that began have ended and no other will begin."""
        counts, mapped = _counts(owner), self._mapped[owner.task_id]
        if owner.stop is not None:
            self._finish(owner, NodeTaskStatus.TERMINATED, owner.stop.reason, call)
        elif self._components[self._owner(owner)].stop is not None:
            # The stop reaches this node task as well.
            return
        elif mapped.halt is None:
            self._offer(owner)
        else:
            message = (
                f"the results of {counts.completed} items have over {self._limits.output_bytes} bytes in total: return "
                "less data, or a reference to it"
            )
            if mapped.code == TOO_FEW:
                message = (
                    f"at least {counts.need} of {counts.total} items must complete; {counts.failed} failed, "
                    f"{counts.cancelled} cancelled, {counts.total - counts.begun} never begun; the first is "
                    f"{mapped.first}"
                )
            self._finish(replace(owner, error=TaskError(mapped.code, message)), NodeTaskStatus.FAILED, "", call)

    def _request_stop(self, task: NodeTask, mark: StopMark, call: Call) -> None:
        if not self._is_mapped(task):
            super()._request_stop(task, mark, call)
        elif task.stop is None:
            task = self._tasks[task.task_id] = replace(task, stop=mark)
            self._add_event(task, TaskEventKind.STOPPING)
            if _counts(task).open:
                call.work.append((self._owner(task), partial(self._stop_items, task.task_id, call)))
            else:
                self._finish(self._withdraw(task), NodeTaskStatus.TERMINATED, mark.reason, call)

    def _stop_items(self, task_id: str, call: Call) -> None:
        """Stop the items that have begun."""
        for place in range(_counts(self._tasks[task_id]).begun):
            owner = self._tasks[task_id]
            mark = owner.stop or self._mapped[task_id].halt
            if owner.status is not NodeTaskStatus.RUNNING or mark is None:
                return
            item = self._tasks[f"{task_id}:{place}"]
            if item.status is NodeTaskStatus.RUNNING:
                self._request_stop(item, mark, call)
            elif not item.status.terminal:
                self._end_idle(item, mark.reason, call)


def _counts(task: NodeTask) -> ItemCounts:
    assert task.items is not None
    return task.items


def _loss_reason(item: NodeTask, status: NodeTaskStatus, reason: str) -> str:
    """Return why an item did not complete, in brief, and why it was not tried again."""
    error = item.error
    if status is not NodeTaskStatus.FAILED or error is None:
        return reason
    text = brief(error.typed_message if error.code == "NODE_ERROR" else error.summary)
    return text + (f", not tried again: {error.final}" if error.final else "")
