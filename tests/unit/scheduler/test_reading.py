"""Reading cycles by what is asked for."""

from tests.unit.scheduler.memory_scheduler import MemoryScheduler, event
from tradewind.scheduler.domain.beginning import RerunRequest
from tradewind.scheduler.domain.rerun import Rerun
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.use_cases.read_flows import CycleFilter, ReadFlows


async def test_a_rerun_of_an_old_cycle_is_among_those_that_started_lately() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register(keep_cycles=100)
    runs = [(await scheduler.run()).state for _ in range(60)]
    await scheduler.fold([event(run) for run in runs], {})
    scheduler.clock.advance(60_000)
    rerun = Rerun(0, runs[2].facts.run_id, (), (), "ada", "")
    await scheduler.stores.cycles.begin_rerun(
        RerunRequest(await scheduler.state(runs[2].name), "again", rerun, 5000, 0)
    )
    stores = scheduler.stores
    read = ReadFlows(stores.flows, stores.cycles, stores.states)
    wanted = CycleFilter(started_after_ms=scheduler.clock.now_ms())
    found, following = await read.cycles("f", wanted, None, 10)
    assert ([state.name for state in found], following) == ([RunName("f", 2, 1)], None)
