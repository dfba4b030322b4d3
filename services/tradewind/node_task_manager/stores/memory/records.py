"""The records of one shard in memory, and how they are read."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from tradewind.node_task_manager.domain.component import Component, RunSubmission
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName, TaskName
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus, StopMark
from tradewind.node_task_manager.domain.plan import FailurePolicy, Plan, PlanNode
from tradewind.node_task_manager.domain.waiting import Resumption
from tradewind.node_task_manager.ports.plans import PART
from tradewind.node_task_manager.ports.reading import StoredLine
from tradewind.node_task_manager.stores.memory.replacing import replace

task_name = functools.lru_cache(maxsize=65_536)(TaskName.parse)
"""Parses the id of a node task."""


@functools.lru_cache(maxsize=65_536)
def run_of(task_id: str) -> str:
    """Return the name of the run that a node task belongs to."""
    return str(task_name(task_id).run)


def holds_lease(task: NodeTask | None, nonce: str) -> TypeGuard[NodeTask]:
    """Say whether an attempt, named by its nonce, holds its lease."""
    return task is not None and task.status is NodeTaskStatus.RUNNING and task.nonce == nonce


@dataclass
class Run:
    """What belongs to a run as a whole: its submission, and the failure policy of each component."""

    submission: RunSubmission
    policy: dict[str, FailurePolicy]


@dataclass
class Private:
    """What a node task's record holds besides the public part."""

    close_at: int = 0
    total_at: int = 0
    beat_by: int = 0
    dead: str = ""
    judged: bool = False
    settled: str = ""
    """Nonce of the latest attempt that reported its own failure, or that it waits, and was not the last."""


class MemoryRecords:
    """A PlanStore, and a NodeTaskReader but for log lines; `clock` returns epoch ms."""

    def __init__(self, limits: Limits, clock: Callable[[], int]) -> None:
        self._limits = limits
        self._clock = clock
        self._plans: dict[str, Plan] = {}
        self._runs: dict[str, Run] = {}
        self._components: dict[tuple[str, str], Component] = {}
        self._inputs: dict[tuple[str, str], str] = {}
        """What entry nodes of formerly withheld components get instead of the run's inputs."""
        self._tasks: dict[str, NodeTask] = {}
        self._private: dict[str, Private] = {}
        self._stops: dict[tuple[str, str], tuple[str, StopMark]] = {}
        self._purged: dict[str, tuple[int, int]] = {}
        """When flows were purged, and their schedule epochs."""
        self._leases: dict[str, int] = {}
        self._delayed: dict[str, int] = {}
        self._dead: dict[str, int] = {}
        self._logs: dict[tuple[str, int], list[StoredLine]] = {}
        self._unlisted_ms = 0
        """Runs that had ended by then are no longer listed."""
        self._signals: dict[str, list[Resumption]] = {}
        """Signals that came before their node tasks waited."""
        self._signal_requests: dict[str, dict[str, str]] = {}
        """Results of the latest signal requests, by node task and request id."""

    async def save(self, plan: Plan, keep_ms: int | None = None) -> None:
        self._plans[plan.digest] = plan

    async def load(self, digest: str, place: int | None = None) -> Plan | None:
        plan = self._plans.get(digest)
        if plan is None or place is None or plan.edges or len(plan.nodes) <= PART:
            return plan
        first = place // PART * PART
        return dataclasses.replace(plan, nodes=plan.nodes[first : first + PART], first=first)

    async def tasks(self, ids: Sequence[str], *, inputs: bool = False, outputs: bool = False) -> list[NodeTask | None]:
        found: list[NodeTask | None] = []
        for task_id in ids:
            task = self._tasks.get(task_id)
            if task is not None:
                task = replace(
                    task,
                    lease_deadline=self._leases.get(task_id, 0),
                    inputs=tuple(sorted(task.inputs)) if inputs else (),
                    outputs=task.outputs if outputs else (),
                )
            found.append(task)
        return found

    async def components(self, wanted: Sequence[tuple[RunName, str]]) -> list[Component | None]:
        found = [self._components.get((str(run), component_id)) for run, component_id in wanted]
        return [self._counted(component) if component is not None else None for component in found]

    def _counted(self, component: Component) -> Component:
        """Count the running node tasks of an ad-hoc run."""
        if not component.run.ad_hoc:
            return component
        tasks = (self._tasks.get(component.run.task_id(node.node_id)) for node in self._plans[component.plan].nodes)
        return replace(
            component, running=sum(task is not None and task.status is NodeTaskStatus.RUNNING for task in tasks)
        )

    async def component_ids(self, run: RunName) -> tuple[str, ...]:
        run_record = self._runs.get(str(run))
        return tuple(at for at, _ in run_record.submission.components) if run_record else ()

    async def run_inputs(self, run: RunName, component_id: str) -> str:
        found = self._runs.get(str(run))
        return self._inputs.get((str(run), component_id)) or (found.submission.inputs_json if found else "")

    async def runs_of(
        self, user_id: str, kind: str, after: tuple[int, str] | None, limit: int, *, only_open: bool = False
    ) -> list[tuple[int, str]]:
        listed = sorted(
            (component.submitted_at, name)
            for (name, _), component in self._components.items()
            if component.user_id == user_id
            and component.run.ad_hoc.startswith(f"{kind}:")
            and not 0 < component.finished_at <= self._unlisted_ms
            and not (only_open and component.finished_at)
        )
        return [each for each in reversed(listed) if after is None or each < after][:limit]

    async def dead_letters(self, user_id: str, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str]]:
        listed = sorted(
            (at, task_id)
            for task_id, at in self._dead.items()
            if self._components[self._owner(self._tasks[task_id])].user_id == user_id
        )
        return [each for each in reversed(listed) if after is None or each < after][:limit]

    async def unlist_dead_letter(self, user_id: str, task_id: str) -> None:
        self._dead.pop(task_id, None)

    async def held_by(self, worker_id: str) -> list[str]:
        held = ((at, task_id) for task_id, at in self._leases.items() if self._tasks[task_id].worker_id == worker_id)
        return [task_id for _, task_id in sorted(held)]

    async def emitted(self, ids: Sequence[str]) -> list[tuple[tuple[str, str], ...]]:
        return [self._tasks[task_id].outputs if task_id in self._tasks else () for task_id in ids]

    async def outputs(self, wanted: Sequence[tuple[str, str]]) -> list[str | None]:
        tasks = [self._tasks.get(task_id) for task_id, _ in wanted]
        return [
            dict(task.outputs).get(handle) if task else None for task, (_, handle) in zip(tasks, wanted, strict=True)
        ]

    def _plan(self, task: NodeTask) -> Plan:
        return self._plans[self._components[self._owner(task)].plan]

    def _node(self, task: NodeTask) -> PlanNode:
        return self._plan(task).nodes[task.index]

    def _owner(self, task: NodeTask) -> tuple[str, str]:
        return run_of(task.task_id), task.component_id
