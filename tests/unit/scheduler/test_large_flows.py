"""Large flows among small ones: what takes long for one holds up no other."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec import structs

from tests.stores.scheduler.bench import MINUTE, backfill_draft
from tests.unit.scheduler.memory_scheduler import DirectNodeTasks, MemoryScheduler, event
from tests.waiting import until
from tradewind.scheduler.domain.beginning import BeginAnswer, BeginOutcome, BeginRequest
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.domain.component_plan import ComponentPlan
from tradewind.scheduler.domain.due import DueFlow
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.submission import Submission, SubmitAnswer
from tradewind.scheduler.domain.weather import definition_from_json
from tradewind.scheduler.ports.owning import NOT_OWNER, Epochs
from tradewind.scheduler.ports.waking import Work
from tradewind.scheduler.use_cases import definitions
from tradewind.scheduler.use_cases.await_ends import AwaitEnds
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.begin_backfilled import BeginBackfilled
from tradewind.scheduler.use_cases.begin_cycles import CycleRequest
from tradewind.scheduler.use_cases.begin_due import BeginDue
from tradewind.scheduler.use_cases.begin_queued import BeginQueued
from tradewind.scheduler.use_cases.change_hub import ChangeHub
from tradewind.scheduler.use_cases.definitions import Definitions
from tradewind.scheduler.use_cases.flow_paths import edges_from
from tradewind.scheduler.use_cases.learn_definitions import LearnDefinitions
from tradewind.scheduler.use_cases.run_cycles import GROUP, GROUPS_AT_ONCE, RunCycles
from tradewind.server.large_work import LARGE_BYTES
from tradewind.server.partitions import partition_of

LARGE = "x" * LARGE_BYTES


class Parsing:
    """Counts the definitions that are parsed; large ones wait until they are let."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.goes_on = threading.Event()

    def __call__(self, text: str) -> Any:
        self.begun.append(text)
        if len(text) > LARGE_BYTES:
            assert self.goes_on.wait(60)
        return definition_from_json(text)


@pytest.fixture
def parsing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parsing]:
    parsing = Parsing()
    monkeypatch.setattr(definitions, "definition_from_json", parsing)
    yield parsing
    parsing.goes_on.set()


async def record_of(scheduler: MemoryScheduler) -> FlowRecord:
    (record,) = await scheduler.stores.flows.find(["f"])
    assert record is not None
    return record


def running(scheduler: MemoryScheduler) -> RunCycles:
    stores = scheduler.stores
    hub = ChangeHub(stores.changes, stores.cycles, stores.states)
    ends = AwaitEnds(scheduler.waiters, hub, stores.states, lambda _partition: True)
    return RunCycles(scheduler.begin, scheduler.hand_over, ends, stores.states, scheduler.definitions)


async def test_small_flow_runs_while_the_definition_of_a_large_one_is_parsed(parsing: Parsing) -> None:
    scheduler = MemoryScheduler()
    await scheduler.register("large", config=LARGE)
    await scheduler.register("small")
    run = running(scheduler)
    both = asyncio.ensure_future(run([CycleRequest("large")]))
    await until(lambda: bool(parsing.begun), "the definition is being parsed")
    (small,) = await asyncio.wait_for(run([CycleRequest("small")]), 60)
    assert small.outcome is BeginOutcome.BEGUN
    assert not both.done()
    parsing.goes_on.set()
    (large,) = await both
    assert large.outcome is BeginOutcome.BEGUN
    assert large.planned is scheduler.definitions.current("large")


async def test_runs_that_wait_for_a_definition_begin_together_and_read_the_flow_few_times(parsing: Parsing) -> None:
    scheduler = MemoryScheduler()
    await scheduler.register("large", config=LARGE)
    await scheduler.register("small")
    find, begin = scheduler.stores.flows.find, scheduler.stores.cycles.begin
    read: list[str] = []
    begun: list[int] = []

    async def found(flow_ids: Sequence[str]) -> list[FlowRecord | None]:
        read.extend(flow_ids)
        return await find(flow_ids)

    async def noted(requests: Sequence[BeginRequest], epochs: Epochs = NOT_OWNER) -> list[BeginAnswer]:
        begun.append(len(requests))
        return await begin(requests, epochs)

    scheduler.stores.flows.find = found  # type: ignore[method-assign]
    scheduler.stores.cycles.begin = noted  # type: ignore[method-assign]
    run = running(scheduler)
    first = asyncio.ensure_future(run([CycleRequest("large")]))
    await until(lambda: bool(parsing.begun), "the definition is being parsed")
    later = []
    for _ in range(20):
        later.append(asyncio.ensure_future(run([CycleRequest("large")])))
        await run([CycleRequest("small")])
    parsing.goes_on.set()
    results = [await each for each in (first, *later)]
    assert all(result.outcome is BeginOutcome.BEGUN for (result,) in results)
    assert read.count("large") == 2, "once to see that it is large, once to parse it"
    assert begun == [*[1] * 20, 1, 20]


async def test_small_flows_that_are_due_begin_while_the_definition_of_a_large_one_is_parsed(parsing: Parsing) -> None:
    scheduler = MemoryScheduler()
    await scheduler.register("large", config=LARGE)
    await scheduler.register("small")
    begin_due = BeginDue(scheduler.begin)
    due = [DueFlow(flow_id, 1_000, 1_000, 1, flow_id) for flow_id in ("large", "small")]
    begun = await asyncio.wait_for(begin_due(due, {}), 60)
    assert (begun.late, [answer.token for answer in begun.answers]) == ([due[0]], ["small"])
    assert len(parsing.begun) == 1
    parsing.goes_on.set()
    begun = await begin_due(begun.late, {}, wait=True)
    assert (begun.late, [answer.token for answer in begun.answers]) == ([], ["large"])


async def test_changed_large_flow_is_not_parsed_among_others_either(parsing: Parsing) -> None:
    """Another replica has registered it."""
    scheduler = MemoryScheduler()
    await scheduler.register("large")
    before = await scheduler.planned("large")
    await scheduler.register("large", config=LARGE)
    (begun,) = await asyncio.wait_for(scheduler.begin([CycleRequest("large")], wait=False), 60)
    assert begun.answer.outcome is BeginOutcome.REVISION_CHANGED
    assert scheduler.definitions.current("large") is before
    parsing.goes_on.set()
    (begun,) = await scheduler.begin([CycleRequest("large")])
    assert begun.planned is not None
    assert begun.planned.shape.revision == 2


async def test_large_flow_that_another_user_has_registered_anew_is_not_parsed_among_others(parsing: Parsing) -> None:
    """Deleted and registered again, it has the same revision and definition."""
    scheduler = MemoryScheduler()
    await scheduler.register(config=LARGE)
    parsing.goes_on.set()
    await scheduler.run()
    parsing.goes_on.clear()
    scheduler.stores.data.flows["f"].user_id = "another"
    scheduler.definitions.forget("f")
    (begun,) = await asyncio.wait_for(scheduler.begin([CycleRequest("f")], wait=False), 60)
    assert begun.answer.outcome is BeginOutcome.REVISION_CHANGED
    parsing.goes_on.set()
    assert (await scheduler.run()).state.facts.user_id == "another"


async def test_flows_that_are_parsed_next_are_not_read_again(parsing: Parsing) -> None:
    scheduler = MemoryScheduler()
    for flow_id in "ab":
        await scheduler.register(flow_id, config=LARGE)
    find = scheduler.stores.flows.find
    read: list[str] = []

    async def found(flow_ids: Sequence[str]) -> list[FlowRecord | None]:
        read.extend(flow_ids)
        return await find(flow_ids)

    scheduler.stores.flows.find = found  # type: ignore[method-assign]
    both = asyncio.ensure_future(scheduler.definitions.load(["a", "b"]))
    await until(lambda: bool(parsing.begun), "the first definition is being parsed")
    for _ in range(3):
        assert await asyncio.wait_for(scheduler.definitions.load(["b"], large=False), 60) == {}
    parsing.goes_on.set()
    assert all((await both).values())
    assert read == ["a", "b"]
    assert scheduler.definitions._long == set()


async def test_definition_that_several_wait_for_is_parsed_once(parsing: Parsing) -> None:
    scheduler = MemoryScheduler()
    await scheduler.register(config=LARGE)
    parsing.goes_on.set()
    run = (await scheduler.run()).state
    parsing.goes_on.clear()
    fresh = Definitions(scheduler.stores.flows)
    parsing.begun.clear()
    waiting = [asyncio.ensure_future(each) for each in (fresh.load(["f"]), fresh.of_run(run), fresh.load(["f"]))]
    await until(lambda: bool(parsing.begun), "the definition is being parsed")
    parsing.goes_on.set()
    loaded, of_run, again = await asyncio.gather(*waiting)
    assert loaded["f"] is of_run is again["f"]  # type: ignore[index]
    assert len(parsing.begun) == 1


async def test_revision_that_was_read_later_stays_current_though_it_is_parsed_sooner(parsing: Parsing) -> None:
    scheduler = MemoryScheduler()
    known = scheduler.definitions
    await scheduler.register(config=LARGE)
    earlier = asyncio.ensure_future(known.learn(await record_of(scheduler)))
    await until(lambda: bool(parsing.begun), "the first revision is being parsed")
    await scheduler.register(nodes=2)
    later = await known.learn(await record_of(scheduler))
    parsing.goes_on.set()
    assert (await earlier).shape.revision == 1
    assert known.current("f") is later


async def test_cycle_begins_though_its_definition_gives_way_to_others_meanwhile() -> None:
    scheduler = MemoryScheduler()
    for name in "abc":
        await scheduler.register(name, nodes=4)
    scheduler.definitions._max_nodes = 5
    begun = await scheduler.begin([CycleRequest(name) for name in "abc"])
    assert [each.answer.outcome for each in begun] == [BeginOutcome.BEGUN] * 3


async def test_definitions_of_large_flows_that_are_named_are_looked_through_in_a_thread() -> None:
    scheduler = MemoryScheduler()
    names = [f"f{at:02}" for at in range(45)]
    for name in names:
        await scheduler.register(name, config=LARGE if name == "f07" else "")
    find = scheduler.stores.flows.find
    read: list[int] = []
    threads: dict[str, int] = {}

    async def found(flow_ids: Sequence[str]) -> list[FlowRecord | None]:
        read.append(len(flow_ids))
        return await find(flow_ids)

    def next_of(record: FlowRecord) -> Sequence[str]:
        threads[record.flow_id] = threading.get_ident()
        return ()

    scheduler.stores.flows.find = found  # type: ignore[method-assign]
    reached = await edges_from(scheduler.stores.flows, "new", "", names, next_of)
    assert reached.edges == {"new": names} | dict.fromkeys(names, ())
    assert [name for name in names if threads[name] != threading.get_ident()] == ["f07"]
    assert read == [20, 20, 5]


class StoresPlans(DirectNodeTasks):
    """Takes long to store a plan."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = asyncio.Event()

    async def submit(self, runs: Sequence[Submission], plans: Sequence[ComponentPlan]) -> list[SubmitAnswer]:
        answers = await super().submit(runs, plans)
        if any(len(plan.nodes[0].config_json) > LARGE_BYTES for plan in plans) or len(plans) > 500:
            await self.stored.wait()
        return answers


@pytest.mark.parametrize("size", [{"nodes": 501}, {"nodes": 2, "config": "x" * 150_000}])
async def test_small_run_is_submitted_while_the_plans_of_a_large_one_are_stored(size: dict[str, Any]) -> None:
    node_tasks = StoresPlans()
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register("large", **size)
    await scheduler.register("small", config="small")
    run = running(scheduler)
    large = asyncio.ensure_future(run([CycleRequest("large")]))
    await until(lambda: bool(node_tasks.plans), "the plans of the large run are being stored")
    await asyncio.wait_for(run([CycleRequest("small")]), 60)
    assert not large.done()
    node_tasks.stored.set()
    await large
    assert [names[0].flow_id for names, plans in node_tasks.asked if plans] == ["large", "small"]


async def test_runs_of_a_flow_with_large_configs_are_submitted_together() -> None:
    node_tasks = DirectNodeTasks()
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register("large", nodes=2, config="x" * 150_000)
    run = running(scheduler)
    await run([CycleRequest("large")])
    node_tasks.asked.clear()
    await run([CycleRequest("large")] * 100)
    assert [len(names) for names, _ in node_tasks.asked] == [100]


FLOWS = {"large": LARGE, "small": ""}
EPOCHS = {partition_of(flow_id): 1 for flow_id in FLOWS}


class Waiting:
    """What a restarted scheduler finds waiting in its store."""

    def __init__(self) -> None:
        self.scheduler = MemoryScheduler()
        self.background = Background()
        self.woken: list[str] = []

    def restart(self) -> None:
        """Forget all definitions."""
        self.scheduler.definitions = self.scheduler.begin._definitions = Definitions(self.scheduler.stores.flows)
        self.learn = LearnDefinitions(self.scheduler.definitions, self.background, self._wake)

    def _wake(self, work: Work, key: str, in_ms: int) -> None:
        assert (work, in_ms) == (Work.WAITING, 0)
        self.woken.append(key)

    async def check(self, begin: Any, parsing: Parsing) -> None:
        """Call `begin` until everything has begun."""

        async def begun() -> list[str]:
            return [run.state.name.flow_id for run in await asyncio.wait_for(begin(EPOCHS), 60)]

        try:
            assert await begun() == ["small"]
            assert await begun() == []
            assert self.woken == []
            parsing.goes_on.set()
            await until(lambda: self.woken == ["large"], "the owner is woken once")
            assert await begun() == ["large"]
            assert len(parsing.begun) == 2, "each definition is parsed once"
        finally:
            parsing.goes_on.set()
            await self.background.stop()


async def test_planned_times_that_wait_begin_while_the_definition_of_another_flow_is_parsed(parsing: Parsing) -> None:
    waiting = Waiting()
    scheduler = waiting.scheduler
    parsing.goes_on.set()
    for flow_id, config in FLOWS.items():
        await scheduler.register(flow_id, config=config, overlap="queue_all")
        scheduler.stores.data.flows[flow_id].status = FlowStatus.RUNNING
        due = CycleRequest(flow_id, CycleOrigin.SCHEDULE, schedule_epoch=2**60)
        first, second = await scheduler.begin([structs.replace(due, due_ms=at, now_ms=at) for at in (60_000, 120_000)])
        assert (first.answer.outcome, second.answer.outcome) == (BeginOutcome.BEGUN, BeginOutcome.SETTLED)
        assert first.answer.state is not None
        await scheduler.fold([event(first.answer.state)], EPOCHS)
    parsing.goes_on.clear()
    parsing.begun.clear()
    waiting.restart()
    await waiting.check(BeginQueued(scheduler.begin, scheduler.stores.firings, waiting.learn), parsing)


async def test_backfills_go_on_while_the_definition_of_another_flow_is_parsed(parsing: Parsing) -> None:
    waiting = Waiting()
    scheduler = waiting.scheduler
    for flow_id, config in FLOWS.items():
        await scheduler.register(flow_id, config=config)
        scheduler.clock.advance(1)
        await scheduler.stores.backfills.create(backfill_draft(MINUTE, 3 * MINUTE, flow_id=flow_id))
    epochs = {place: await scheduler.stores.partitions.acquire(place) for place in EPOCHS}
    waiting.restart()
    begin = BeginBackfilled(scheduler.begin, scheduler.stores.backfills, waiting.learn)
    await waiting.check(lambda _: begin(epochs), parsing)


async def test_call_of_many_runs_begins_no_more_while_its_large_ones_are_being_submitted() -> None:
    node_tasks = StoresPlans()
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register("large", nodes=501)
    await scheduler.register("small", config="small")
    begin = scheduler.stores.cycles.begin
    begun: list[str] = []

    async def noted(requests: Sequence[BeginRequest], epochs: Epochs = NOT_OWNER) -> list[BeginAnswer]:
        begun.extend(request.shape.flow_id for request in requests)
        return await begin(requests, epochs)

    scheduler.stores.cycles.begin = noted  # type: ignore[method-assign]
    requests = [CycleRequest("large")] + [CycleRequest("small")] * (GROUP - 1)
    call = asyncio.ensure_future(running(scheduler)(requests * 10))
    most = GROUPS_AT_ONCE * (GROUP - 1)
    await until(lambda: sum(len(names) for names, _ in node_tasks.asked) >= most, "the small runs are submitted")
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(begun) == GROUPS_AT_ONCE * GROUP
    node_tasks.stored.set()
    await call
    assert len(begun) == 10 * GROUP
