"""Reading only as much about cycles as is asked for, and the answers about flows that do not exist."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.scheduler.memory_scheduler import MemoryScheduler, event
from tradewind.scheduler.domain.beginning import RerunRequest
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_outline import CycleOutline
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.flow_record import FlowOutline, FlowRecord
from tradewind.scheduler.domain.log_line import LogLine
from tradewind.scheduler.domain.rerun import Rerun
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.use_cases.read_flows import CycleFilter, FlowFilter, ReadFlows
from tradewind.scheduler.use_cases.read_logs import LineFilter, ReadLogs
from tradewind.scheduler.use_cases.similar_flows import no_such_flow
from tradewind.server.access.identity import Identity, set_identity
from tradewind.server.access.roles import Role


class SpiedFlows:
    """Flows in memory; notes how many are outlined and which are read whole."""

    def __init__(self, flows: FlowRecords) -> None:
        self._flows = flows
        self.outlined = 0
        self.read: list[str] = []

    async def list_ids(self, after: str, limit: int) -> list[str]:
        return await self._flows.list_ids(after, limit)

    async def outlines(self, after: str, limit: int) -> tuple[list[FlowOutline], str]:
        found = await self._flows.outlines(after, limit)
        self.outlined += len(found[0])
        return found

    async def find(self, flow_ids: Sequence[str]) -> list[FlowRecord | None]:
        self.read += flow_ids
        return await self._flows.find(flow_ids)


async def spied(scheduler: MemoryScheduler) -> tuple[SpiedFlows, ReadFlows]:
    stores = scheduler.stores
    spy: Any = SpiedFlows(stores.flows)
    return spy, ReadFlows(spy, stores.cycles, stores.states)


async def test_one_page_examines_a_bounded_number_of_flows_and_reads_none_that_is_not_wanted() -> None:
    scheduler = MemoryScheduler()
    for number in range(5600):
        await scheduler.register(f"flow-{number:04}", user_id="ann" if number % 700 == 699 else "bob")
    spy, read = await spied(scheduler)
    pages: list[list[str]] = []
    after: str | None = ""
    while after is not None:
        page, after = await read.flows(FlowFilter(user_id="ann"), after, 100)
        pages.append([flow.flow_id for flow in page])
        assert spy.outlined <= 5500 * len(pages)
    assert pages == [
        ["flow-0699", "flow-1399", "flow-2099", "flow-2799", "flow-3499", "flow-4199", "flow-4899"],
        ["flow-5599"],
    ]
    assert spy.read == [flow_id for page in pages for flow_id in page]
    assert await read.flows(FlowFilter(user_id="eve"), "", 100) == ([], "flow-5099")


async def test_page_reads_only_the_flows_that_one_message_holds() -> None:
    scheduler = MemoryScheduler()
    for number in range(60):
        await scheduler.register(f"flow-{number:02}", config="x" * 100_000)
    spy, read = await spied(scheduler)
    page, after = await read.flows(FlowFilter(user_id="default"), "", 50)
    assert [flow.flow_id for flow in page] == spy.read == [f"flow-{number:02}" for number in range(5)]
    assert after == "flow-04"


async def test_list_of_all_flows_outlines_none_and_reads_few_more_than_one_message_holds() -> None:
    scheduler = MemoryScheduler()
    for number in range(60):
        await scheduler.register(f"flow-{number:02}", config="x" * (100_000 if number < 30 else 10))
    spy, read = await spied(scheduler)
    pages: list[list[str]] = []
    after: str | None = ""
    while after is not None:
        spy.read.clear()
        page, after = await read.flows(FlowFilter(), after, 40)
        pages.append([flow.flow_id for flow in page])
        assert len(spy.read) <= len(page) + 20
    assert [len(page) for page in pages] == [5, 5, 5, 5, 5, 35]
    assert [flow_id for page in pages for flow_id in page] == [f"flow-{number:02}" for number in range(60)]
    assert spy.outlined == 0


async def test_page_has_no_flow_that_another_user_has_registered_meanwhile() -> None:
    scheduler = MemoryScheduler()
    for flow_id in ("kept", "taken"):
        await scheduler.register(flow_id, user_id="ann")
    spy, read = await spied(scheduler)
    outlined = spy.outlines

    async def then_taken(after: str, limit: int) -> tuple[list[FlowOutline], str]:
        found = await outlined(after, limit)
        scheduler.stores.data.flows["taken"].user_id = "bob"
        return found

    spy.outlines = then_taken  # type: ignore[method-assign]
    page, _ = await read.flows(FlowFilter(user_id="ann"), "", 10)
    assert [flow.flow_id for flow in page] == ["kept"]


async def test_rerun_of_an_old_cycle_counts_as_recently_started() -> None:
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


class CountedCycles:
    """Cycles in memory; counts how many are outlined and how many are read whole."""

    def __init__(self, scheduler: MemoryScheduler) -> None:
        self._stores = scheduler.stores
        self.outlined = self.whole = 0

    async def outlines(self, flow_id: str, below: RunName | None, limit: int) -> list[CycleOutline]:
        found = await self._stores.cycles.outlines(flow_id, below, limit)
        self.outlined += len(found)
        return found

    async def newest_open(self, flow_id: str, below: RunName) -> RunName | None:
        return await self._stores.cycles.newest_open(flow_id, below)

    async def load_many(self, runs: Sequence[RunName]) -> list[ChainState | None]:
        self.whole += len(runs)
        return await self._stores.states.load_many(runs)


def counted(scheduler: MemoryScheduler) -> tuple[CountedCycles, ReadFlows]:
    counts: Any = CountedCycles(scheduler)
    return counts, ReadFlows(scheduler.stores.flows, counts, counts)


async def test_page_reads_few_more_cycles_than_one_message_holds() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    for _ in range(60):
        await scheduler.run(inputs_json=f'"{"x" * 400_000}"')
    counts, read = counted(scheduler)
    page, following = await read.cycles("f", CycleFilter(), None, 1000)
    assert ([state.name.cycle for state in page], following) == ([59], RunName("f", 59, 0))
    assert counts.whole <= 5


async def test_one_page_examines_a_bounded_number_of_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.scheduler.use_cases.read_flows._MOST_EXAMINED", 1000)
    scheduler = MemoryScheduler()
    await scheduler.register(keep_cycles=10_000)
    runs = [(await scheduler.run()).state for _ in range(2600)]
    await scheduler.fold([event(run) for run in (runs[0], runs[2000])], {})
    counts, read = counted(scheduler)
    pages: list[list[int]] = []
    following: RunName | None = None
    while not pages or following is not None:
        page, following = await read.cycles("f", CycleFilter({CycleStatus.COMPLETED}), following, 10)
        pages.append([state.name.cycle for state in page])
        assert counts.outlined <= 1500 * len(pages)
    assert (pages, counts.whole) == ([[2000], [], [0]], 2)


async def test_flow_logs_cover_the_newest_cycles_despite_reruns() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register(keep_cycles=100)
    states = [(await scheduler.run()).state for _ in range(7)]
    for run in range(7):
        await scheduler.fold([event(states[-1])], {})
        rerun = Rerun(run, states[-1].facts.run_id, (), (), "ada", "")
        latest = await scheduler.state(states[-1].name)
        answer = await scheduler.stores.cycles.begin_rerun(RerunRequest(latest, f"again-{run}", rerun, 5000, 0))
        assert answer.state is not None
        states.append(answer.state)

    async def node_logs(state: ChainState, after: str) -> tuple[list[LogLine], bool]:
        return [], False

    stores = scheduler.stores
    read = ReadFlows(stores.flows, stores.cycles, stores.states)
    node_tasks: Any = SimpleNamespace(node_logs=node_logs)
    lines, _ = await ReadLogs(read, stores.cycles, stores.states, stores.logs, node_tasks).page(
        "f", None, LineFilter(), None, 100
    )
    assert list(dict.fromkeys(line.cycle for line in lines)) == [2, 3, 4, 5, 6]
    assert lines[-1].text == 'Starting run 7 of cycle 6, by "ada"'


async def test_missing_flow_suggests_the_nearest_of_the_users_own() -> None:
    scheduler = MemoryScheduler()
    for owner, flow_id in (("ann", "shops"), ("bob", "shop")):
        await scheduler.register(flow_id, user_id=owner)
    flows = scheduler.stores.flows
    assert (await no_such_flow(flows, "shopp")).message == 'no flow "shopp"; did you mean "shop"?'

    async def message_for(user_id: str) -> str:
        set_identity(Identity(user_id, Role.USER))
        return (await no_such_flow(flows, "shopp")).message

    found = [await asyncio.create_task(message_for(user_id)) for user_id in ("ann", "bob", "eve")]
    assert found == [
        'no flow "shopp"; did you mean "shops"?',
        'no flow "shopp"; did you mean "shop"?',
        'no flow "shopp"',
    ]


async def test_missing_flow_suggests_the_nearest_of_a_thousand() -> None:
    scheduler = MemoryScheduler()
    for number in range(1000):
        await scheduler.register(f"flow-{number:04}")
    await scheduler.register("zebra")
    assert (await no_such_flow(scheduler.stores.flows, "zebrra")).message == 'no flow "zebrra"; did you mean "zebra"?'


async def test_list_of_running_cycles_passes_over_those_that_have_ended() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register(keep_cycles=500)
    begun = [(await scheduler.run()).state for _ in range(402)]
    running = [begun[place].name for place in (401, 200, 1, 0)]
    await scheduler.fold([event(state) for state in begun if state.name not in running], {})
    counts, read = counted(scheduler)
    found, below = await read.cycles("f", CycleFilter({CycleStatus.RUNNING}), None, 9)
    assert ([state.name for state in found], below) == (running, None)
    assert (counts.outlined, counts.whole) == (251, 4)
