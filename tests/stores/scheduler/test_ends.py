"""Ends of runs that are to be reported: which are kept, and for how long."""

from tests.stores.scheduler.bench import Bench, shape
from tradewind.scheduler.domain.beginning import BeginRequest
from tradewind.scheduler.domain.chain_state import CycleOrigin, FollowUp
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.ended_run import EndedRun
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.run_name import RunName
from tradewind.server.partitions import partition_of

HERE = [partition_of("f")]


async def test_ends_are_stored_while_there_are_listeners(bench: Bench) -> None:
    ends = bench.stores.ends
    await bench.register()
    assert not (await bench.end(await bench.begun())).follow_up
    assert await ends.waiting(HERE, 9) == []
    bench.has_listeners = True
    expected = []
    for status in (CycleStatus.COMPLETED, CycleStatus.FAILED, CycleStatus.TIMEOUT):
        state = await bench.begun()
        bench.clock.advance(5)
        assert (await bench.end(state, status)).follow_up == FollowUp.PUBLISH_END
        expected.append(EndedRun(state.name, state.facts.run_id, status, bench.now))
    assert await ends.waiting(HERE, 9) == expected
    assert await ends.waiting(HERE, 2) == expected[:2]
    await bench.write_reason(await bench.begun(), "no end")
    bench.has_listeners = False
    await ends.remove([expected[1]])
    assert await ends.waiting(HERE, 9) == [expected[0], expected[2]]
    await ends.remove(expected)
    assert await ends.waiting(HERE, 9) == []


async def test_end_of_a_sub_flow_run_is_stored_without_listeners(bench: Bench) -> None:
    returns = bench.stores.returns
    await bench.register()
    other = await bench.begun()
    parent = Parent(RunName("above", 1), "r0", "sub", 2)
    request = BeginRequest(shape("f"), "child", CycleOrigin.SUB_FLOW, 5000, parent=parent)
    # Other open cycles do not hinder it, nor does it hinder them.
    (answer,) = await bench.stores.cycles.begin([request])
    assert answer.state is not None
    assert answer.state.facts.parent == parent
    assert await bench.stores.states.load(answer.state.name) == answer.state
    await bench.end(other)
    next_one = await bench.begun()
    assert (await bench.end(answer.state, CycleStatus.FAILED)).follow_up == FollowUp.RETURN_END
    ended = EndedRun(answer.state.name, "child", CycleStatus.FAILED, bench.now)
    assert await returns.waiting(HERE, 9) == [ended]
    assert await bench.stores.ends.waiting(HERE, 9) == []
    await bench.end(next_one)
    await returns.remove([ended])
    assert await returns.waiting(HERE, 9) == []


async def test_sub_flow_run_is_kept_until_its_end_is_returned(bench: Bench) -> None:
    await bench.register(keep_cycles=1)
    requests = [
        BeginRequest(
            shape("f", keep_cycles=1),
            f"child{at}",
            CycleOrigin.SUB_FLOW,
            5000,
            parent=Parent(RunName("above", 1), "r0", f"sub:{at}", 1),
        )
        for at in range(3)
    ]
    begun = await bench.stores.cycles.begin(requests)
    for answer in begun:
        assert answer.state is not None
        await bench.end(answer.state)
    ended = await bench.stores.returns.waiting(HERE, 9)
    found = await bench.stores.states.load_many([end.run for end in ended])
    assert [state.facts.run_id for state in found if state] == ["child0", "child1", "child2"]
    await bench.stores.returns.remove(ended)
    await bench.end(await bench.begun(BeginRequest(shape("f", keep_cycles=1), "last", CycleOrigin.RUN_FLOW, 5000)))
    assert [state.name.cycle for state in await bench.stores.cycles.newest("f", None, 9)] == [3]
