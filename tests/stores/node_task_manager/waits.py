"""Random waits of nodes, and random signals to them."""

import random

from tests.stores.node_task_manager.shards import ShardStores
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus, TaskError
from tradewind.node_task_manager.domain.sub_flow import ReportKind, SubFlowReport
from tradewind.node_task_manager.domain.waiting import Signal, Wait

LARGE = '"' + "w" * 3000 + '"'
FORM = '{"title":"Sure?"}'
SURE = "sure"
"""A flow whose cycles never fail."""


def random_wait(rng: random.Random, now: int) -> Wait:
    """Draw the wait of a node that has run: for a signal, for a time, or for whichever comes first."""
    signal = rng.choice(("", "go", "go", "stop"))
    timed = not signal or rng.random() < 0.4
    after = rng.choice((0, 1, 700, 60_000)) if timed and rng.random() < 0.7 else -1
    return Wait(
        signal,
        till=max(1, now + rng.choice((-5, 700, 60_000))) if timed and after < 0 else 0,
        after_ms=after,
        form=FORM if signal and rng.random() < 0.3 else "",
        title="Sure?",
        completes=rng.choice(("", "", "x")),
    )


def random_built_in(rng: random.Random) -> Wait:
    """Draw the wait of a node that needs no worker."""
    if rng.random() < 0.3:
        return Wait(flow_id="other")
    if rng.random() < 0.5:
        return Wait(after_ms=rng.choice((0, 700, 30_000)), late=("x", "null"), passes=rng.random() < 0.7)
    after = rng.choice((-1, 700, 30_000))
    late = ("y", "false") if after >= 0 and rng.random() < 0.5 else None
    late_error = "" if late or after < 0 else "nobody answered"
    return Wait("approval", 0, after, FORM, "Sure?", late=late, late_error=late_error, decides=True)


def random_signal(rng: random.Random, component_id: str, task_id: str, task: NodeTask | None) -> Signal:
    """Draw a signal that a node task waits for; sometimes it assumes no wait, or an earlier one."""
    wait = task.wait if task is not None else None
    attempt, handle, name = -1, "", rng.choice(("go", "stop"))
    if task is not None and wait is not None and wait.signal and rng.random() < 0.9:
        attempt, name = task.attempt - (rng.random() < 0.1), wait.signal
        handle = rng.choice("xy") if wait.decides else wait.completes
    return Signal(
        task_id,
        component_id,
        name,
        rng.choice(("1", '{"a":null}', LARGE)),
        rng.choice(("ann", "bob")),
        rng.choice(("", "", "r1", "r2", "r3")),
        max(attempt, -1),
        handle,
    )


def random_report(rng: random.Random, run_id: str, task: NodeTask, *, ends: bool = False) -> SubFlowReport:
    """Draw the report of a cycle that a node task waits for, sometimes of a cycle that it does not wait for."""
    child = task.child or ("other:7:0" if rng.random() < 0.9 else "other:8:0")
    kind = rng.choice((ReportKind.COMPLETED, ReportKind.FAILED) if ends else tuple(ReportKind))
    if task.wait is not None and task.wait.flow_id == SURE and kind is ReportKind.FAILED:
        kind = ReportKind.COMPLETED
    if not ends and rng.random() < 0.1:
        child = "other:9:0"
    return SubFlowReport(
        task.task_id,
        run_id if ends or rng.random() < 0.95 else "another",
        task.attempt - (not ends and rng.random() < 0.05),
        kind,
        child,
        rng.choice(("1", LARGE)) if kind is ReportKind.COMPLETED else "",
        TaskError("SUB_FLOW_FAILED", "cycle 7 failed") if kind is ReportKind.FAILED else None,
        rng.random() < 0.2,
    )


async def suspended(shard: ShardStores, ids: list[str]) -> list[NodeTask]:
    """Return the suspended node tasks."""
    tasks = await shard.tasks(ids)
    return [task for task in tasks if task is not None and task.status is NodeTaskStatus.SUSPENDED]
