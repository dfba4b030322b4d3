"""Giving ready node tasks to vacancies in memory: users in turn, each user's node tasks by priority and age."""

from collections.abc import Sequence

from msgspec import structs

from tradewind.node_task_manager.domain.concurrency import WhenFull
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus, StopMark
from tradewind.node_task_manager.domain.task_event import TaskEventKind
from tradewind.node_task_manager.ports.work import Assignment, Effects, Vacancy, by_kind
from tradewind.node_task_manager.stores.memory.call import Call
from tradewind.node_task_manager.stores.memory.queues import HEADS
from tradewind.node_task_manager.stores.memory.replacing import replace
from tradewind.node_task_manager.stores.memory.retries import MemoryRetries
from tradewind.node_task_manager.stores.memory.slots import Limit

MANY_INPUTS = 500
INPUT_BYTES = 256 * 1024


class MemoryClaiming(MemoryRetries):
    """Ends each call: carries out its consequences, and gives out ready node tasks."""

    def _conclude(self, call: Call, vacancies: Sequence[Vacancy] = ()) -> Effects:
        self._settle(call)
        self._wake_delayed(call)
        self._settle(call)
        self._wake_paced()
        self._reopen()
        self._queues.tidy()
        self._claim(vacancies, call)
        # Node tasks that claiming skipped or put aside have consequences too; what is ready then goes out next call.
        self._settle(call)
        self._slots.spared += call.owed
        self._reopen()
        self._queues.tidy()
        self._forget_paced()
        for node_type in self._queues.take_fresh():
            self.on_news(node_type)
        call.events = self.new_events()
        due = [*self._delayed.values(), *self._paced.values()]
        call.due_in = min((*(at - self._clock() for at in due), *call.tokens), default=-1)
        return call.effects()

    def _is_latest(self, worker_id: str, session: int) -> bool:
        """Say whether no later session of a worker is known; 0 stands for any."""
        return session == 0 or session >= self._sessions.get(worker_id, 0)

    def _claim(self, vacancies: Sequence[Vacancy], call: Call) -> None:
        by_kinds = [vacancy for kind in by_kind(vacancies).values() for vacancy in kind]
        open_ = [v for v in by_kinds if self._is_latest(v.worker_id, v.session)]
        call.stale += [v.worker_id for v in by_kinds if v not in open_]
        credits = {at: v.credits for at, v in enumerate(open_)}
        types = sorted({node_type for v in open_ for node_type in v.node_types} & self._queues.served.keys())
        for node_type in sorted(types, key=lambda at: (self._queues.served[at], at)):
            takers = [at for at, v in enumerate(open_) if node_type in v.node_types]
            self._serve(node_type, takers, open_, credits, call)

    def _serve(
        self, node_type: str, takers: list[int], open_: list[Vacancy], credits: dict[int, int], call: Call
    ) -> None:
        held_back = 0
        while held_back < HEADS:
            wanted = min(sum(credits[at] for at in takers), self._room_of_type(node_type))
            if wanted <= 0:
                break
            next_turn = self._queues.turn(node_type)
            if next_turn is None:
                return
            user, alone = next_turn
            room = self._room_of_user(user)
            if room <= 0:
                self._queues.park(node_type, user)
                continue
            given = 0
            for task_id, rank in self._queues.take(node_type, user, min(wanted, HEADS, room) if alone else 1):
                limit = self._full_limit(self._tasks[task_id])
                if limit is not None:
                    self._hold_back(self._tasks[task_id], limit, rank, call)
                    held_back += 1
                    continue
                at = max(takers, key=lambda taker: credits[taker] / open_[taker].capacity)
                credits[at] -= 1
                given += 1
                self._assign(self._tasks[task_id], open_[at].worker_id, call)
            self._queues.end_turn(node_type, user, given, self._config.weight(user))
        if node_type in self._queues.served:
            self._queues.served[node_type] = self._clock()
            if wait := self._token_in(node_type):
                call.tokens.append(wait)
            if self._room_of_type(node_type) > 0:
                call.ready_types.append(node_type)

    def _hold_back(self, task: NodeTask, limit: Limit, rank: float, call: Call) -> None:
        """Treat a ready node task that a limit of its own holds back as its key demands."""
        action, reason = self._when_full(task, limit)
        newer = f"{reason}: {task.task_id} is newer"
        if action is WhenFull.DROP_NEW:
            self._skip(task, reason, call)
            return
        skipped: list[str] = []
        if action is WhenFull.KEEP_NEWEST:
            skipped = self._slots.waiting_for(limit.name)
        elif action is WhenFull.CANCEL_OLDEST:
            oldest = self._oldest_holder(limit.name)
            if oldest is not None:
                self._request_stop(oldest, StopMark(newer, "system", self._clock()), call)
            else:
                skipped = self._slots.waiting_for(limit.name)[:1]
        for task_id in skipped:
            self._slots.unblock(task_id)
            self._skip(replace(self._tasks[task_id], blocked=""), newer, call)
        call.owed.update(self._block(task, limit, rank))

    def _skip(self, task: NodeTask, reason: str, call: Call) -> None:
        self._queues.waits.pop(task.task_id, None)
        self._finish(task, NodeTaskStatus.SKIPPED, reason, call)

    def _assign(self, task: NodeTask, worker_id: str, call: Call) -> None:
        self._queues.waits.pop(task.task_id, None)
        task = replace(task, status=NodeTaskStatus.RUNNING, attempt=task.attempt + 1, progress=0, message="", step="")
        task = self._lease(self._take_slots(task), worker_id, self._new_nonce(task))
        self._count_attempt(task)
        waited_ms = max(0, self._clock() - task.ready_at)
        call.assignments.append(structs.replace(self._assignment(task), waited_ms=waited_ms))

    def _new_nonce(self, task: NodeTask) -> str:
        return f"{self._tag(task)}n{next(self._numbers):x}"

    def _tag(self, task: NodeTask) -> str:
        """The characters of the id of its run that its nonces begin with: a removed run may have had the same name."""
        return self._components[self._owner(task)].run_id[:4]

    def _lease(self, task: NodeTask, worker_id: str, nonce: str) -> NodeTask:
        """Give an attempt to a worker and start its clocks."""
        task = replace(task, nonce=nonce, worker_id=worker_id, started_at=self._start_clocks(task))
        self._tasks[task.task_id] = task
        self._add_event(task, TaskEventKind.RUNNING)
        return task

    def _assignment(self, task: NodeTask) -> Assignment:
        run = self._runs[self._owner(task)[0]].submission
        edges = len(self._plan(task).inputs[task.index])
        outside = edges > MANY_INPUTS or sum(len(value.encode()) for _, value in task.inputs) > INPUT_BYTES
        return Assignment(
            worker_id=task.worker_id,
            task_id=task.task_id,
            nonce=task.nonce,
            attempt=task.attempt,
            component_id=task.component_id,
            plan=self._plan(task).digest,
            index=task.index,
            run_id=run.run_id,
            user_id=run.user_id,
            inputs=() if outside else tuple(sorted(task.inputs)),
            inputs_outside=outside,
            run_inputs="" if edges else self._inputs.get(self._owner(task), run.inputs_json),
            traceparent=run.traceparent,
            planned_ms=run.planned_ms,
            deadline_ms=self._private[task.task_id].close_at,
            resumed=task.resumed,
        )
