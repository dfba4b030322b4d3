"""Attempts that random workers begin by themselves: nodes that take the outputs of their own previous node."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import structs

from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.ports.work import Assignment, Outcome, OutcomeKind

KINDS = {OutcomeKind.COMPLETED: 6, OutcomeKind.BEGUN: 3, OutcomeKind.FAILED: 2, OutcomeKind.TERMINATED: 1}


@dataclass
class Eager:
    """Draws such attempts; nonces are the same for all stores."""

    rng: random.Random
    plans: Mapping[str, Plan]
    begun: int = 0

    def after(self, assignment: Assignment, handles: tuple[str, ...]) -> tuple[Assignment, Outcome] | None:
        """Draw an attempt begun on what a node emitted: usually of a node that follows it, sometimes of any node."""
        plan = self.plans[assignment.plan]
        targets = [e.target for e in plan.edges if e.source == assignment.index and e.source_handle in handles]
        if self.rng.random() < 0.05:
            targets = list(range(len(plan.nodes)))
        if not targets or assignment.task_id.count(":") != 3:
            return None
        self.begun += 1
        target = self.rng.choice(targets)
        task_id = RunName.of_node_task(assignment.task_id).task_id(plan.nodes[target].node_id)
        nonce = f"eager{self.begun}"
        begun = structs.replace(assignment, task_id=task_id, index=target, attempt=1, nonce=nonce, inputs=())
        kind = self.rng.choices(list(KINDS), list(KINDS.values()))[0]
        outputs = tuple((handle, "2") for handle in "xy" if self.rng.random() < 0.8)
        error = TaskError("NODE_ERROR", "broke", "IOError") if kind in ("failed", "terminated") else None
        if kind is not OutcomeKind.COMPLETED:
            outputs = ()
        return begun, Outcome(task_id, 1, nonce, kind, outputs, error, eager=begun.worker_id)
