"""Looking after runs that could not be submitted."""

from typing import Any

import pytest

from tests.unit.scheduler.memory_scheduler import DirectNodeTasks, MemoryScheduler
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.use_cases.supervise_runs import SuperviseRuns

UNAVAILABLE = PeerUnavailable("node task manager", "down")


class EmptyNodeTasks(DirectNodeTasks):
    """A node task manager that holds nothing yet, and answers so even while it accepts nothing."""

    async def components(self, _runs: object) -> list[object]:
        return []


def supervise(scheduler: MemoryScheduler) -> SuperviseRuns:
    stores = scheduler.stores
    # No flow here runs another.
    no_sub_flows: Any = None
    return SuperviseRuns(
        stores.open_runs,
        stores.states,
        scheduler.node_tasks,
        scheduler.definitions,
        scheduler.hand_over,
        scheduler.fold,
        scheduler.open_states,
        no_sub_flows,
        scheduler.clock,
        30_000,
    )


async def test_check_fails_while_the_node_task_manager_is_unavailable() -> None:
    scheduler = MemoryScheduler(EmptyNodeTasks(outcomes=[UNAVAILABLE, UNAVAILABLE]))
    await scheduler.register()
    run = await scheduler.run()
    await scheduler.hand_over([run])
    scheduler.clock.advance(60_000)
    with pytest.raises(PeerUnavailable):
        await supervise(scheduler)([run.state.name], {})
    assert scheduler.stores.data.open[run.state.name] == scheduler.clock.now_ms() + 1000


async def test_runs_submitted_late_are_checked_again_after_two_seconds() -> None:
    scheduler = MemoryScheduler(EmptyNodeTasks(outcomes=[UNAVAILABLE]))
    await scheduler.register()
    runs = [await scheduler.run() for _ in range(3)]
    names = [run.state.name for run in runs]
    await scheduler.hand_over(runs)
    scheduler.clock.advance(60_000)
    await supervise(scheduler)(names, {})
    assert scheduler.node_tasks.asked[-1][0] == names
    assert [scheduler.stores.data.open[name] - scheduler.clock.now_ms() for name in names] == [2000] * 3
