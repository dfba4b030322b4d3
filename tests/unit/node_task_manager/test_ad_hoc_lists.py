"""Lists of ad-hoc tasks and batches in some statuses read no more records than these lists need."""

from types import SimpleNamespace
from typing import Any

from tests.unit.node_task_manager.conftest import Bench
from tradewind.node_task_manager.domain.ad_hoc import AdHocWork
from tradewind.node_task_manager.domain.batch import BatchStatus
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind, Vacancy
from tradewind.node_task_manager.use_cases.ad_hoc import AdHoc

RUNNING = 3


async def submitted(bench: Bench, *, batch: bool) -> list[str]:
    """Submit 40 tasks or batches and let all but the first three end; return the names of these, newest first."""
    work = AdHocWork("ann", "noop", ("{}",), batch=batch)
    runs = [work.run(f"r{at:02}") for at in range(40)]
    for run in runs:
        await bench.store.save(work.plan(run))
        await bench.store.submit([work.submission(run)])
        bench.clock.advance(1)
    given = []
    while more := (await bench.store.claim([Vacancy("w", 0, 100, ("noop",))])).assignments:
        given += more
    for each in given[RUNNING:]:
        await bench.store.complete([Outcome(each.task_id, each.attempt, each.nonce, OutcomeKind.COMPLETED, ())])
    bench.store.calls.clear()
    return [str(run) for run in reversed(runs[:RUNNING])]


def lists(bench: Bench) -> AdHoc:
    records: Any = SimpleNamespace(shard=lambda _user: SimpleNamespace(reader=bench.store))
    node_types: Any = None
    return AdHoc({}, records, node_types, Limits())


def read(bench: Bench) -> int:
    """Return how many components were read."""
    return sum(len(args[0]) for name, args in bench.store.calls if name == "components")


async def test_list_of_running_tasks_reads_no_task_that_has_ended(bench: Bench) -> None:
    running = await submitted(bench, batch=False)
    views, after = await lists(bench).tasks("ann", {NodeTaskStatus.RUNNING}, None, 10)
    assert ([view.task.task_id for view in views], after, read(bench)) == (running, None, RUNNING)


async def test_list_of_running_batches_reads_no_batch_that_has_ended(bench: Bench) -> None:
    running = await submitted(bench, batch=True)
    batches, after = await lists(bench).batches("ann", {BatchStatus.QUEUED, BatchStatus.RUNNING}, None, 10)
    assert ([str(each.run) for each in batches], after, read(bench)) == (running, None, RUNNING)


async def test_list_in_a_status_that_ends_reads_all(bench: Bench) -> None:
    await submitted(bench, batch=False)
    wanted = {NodeTaskStatus.RUNNING, NodeTaskStatus.COMPLETED}
    views, after = await lists(bench).tasks("ann", wanted, None, 50)
    assert (len(views), after, read(bench)) == (40, None, 40)
