"""Ends of runs that are to be told: which are kept, and for how long."""

from tests.stores.scheduler.bench import Bench
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.ended_run import EndedRun
from tradewind.server.partitions import partition_of

HERE = [partition_of("f")]


async def test_ends_wait_while_somebody_listens(bench: Bench) -> None:
    ends = bench.stores.ends
    await bench.register()
    assert not (await bench.end(await bench.begun())).follow_up
    assert await ends.waiting(HERE, 9) == []
    bench.listens = True
    expected = []
    for status in (CycleStatus.COMPLETED, CycleStatus.FAILED, CycleStatus.TIMEOUT):
        state = await bench.begun()
        bench.clock.advance(5)
        assert (await bench.end(state, status)).follow_up
        expected.append(EndedRun(state.name, state.facts.run_id, status, bench.now))
    assert await ends.waiting(HERE, 9) == expected
    assert await ends.waiting(HERE, 2) == expected[:2]
    await bench.write(await bench.begun(), "no end")
    bench.listens = False
    await ends.told([expected[1]])
    assert await ends.waiting(HERE, 9) == [expected[0], expected[2]]
    await ends.told(expected)
    assert await ends.waiting(HERE, 9) == []
