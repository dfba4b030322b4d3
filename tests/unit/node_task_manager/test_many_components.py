"""Reading the components of many runs."""

from collections.abc import Sequence

from tests.unit.node_task_manager.test_plans import Records
from tradewind.node_task_manager.domain.ad_hoc import AdHocWork
from tradewind.node_task_manager.domain.component import Component
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.stores.memory.connected import MemoryConnectedWorkers
from tradewind.node_task_manager.use_cases.node_task_records import NodeTaskRecords
from tradewind.node_task_manager.use_cases.plans import PlanCache
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.node_task_manager.use_cases.waits import ExplainPending
from tradewind.server.clock import ManualClock


class Counted(Records):
    """Counts how often components are read."""

    reads = 0

    async def components(self, wanted: Sequence[tuple[RunName, str]]) -> list[Component | None]:
        self.reads += 1
        return await super().components(wanted)


async def test_components_of_many_runs_are_read_together() -> None:
    """One after the other, those of the 500 runs that a scheduler looks after at once take seconds under load."""
    store = Counted()
    shard = Shard(0, store, store, store, store, store, store)
    explain = ExplainPending(lambda _: SystemConfig(), MemoryConnectedWorkers(ManualClock()))
    records = NodeTaskRecords({0: shard}, PlanCache(), explain)
    runs: list[RunName] = []
    for at in range(500):
        work = AdHocWork("ann", "noop", ("{}",))
        runs.append(work.run(str(at)))
        await store.save(work.plan(runs[-1]))
        await store.submit([work.submission(runs[-1])])
    store.reads = 0
    found = await records.components_of((run, "ann", ["0"]) for run in (*runs, RunName.of_batch("unknown")))
    assert [component.run for component in found] == runs
    assert store.reads == 1
