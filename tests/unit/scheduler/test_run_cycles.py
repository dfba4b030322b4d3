"""Running cycles at once: what begins and is submitted together."""

import asyncio
import gc
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest

from tests.unit.scheduler.memory_scheduler import DirectNodeTasks, MemoryScheduler
from tests.waiting import until
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.component_plan import ComponentPlan
from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.submission import Submission, SubmitAnswer
from tradewind.scheduler.use_cases.await_ends import AwaitEnds
from tradewind.scheduler.use_cases.begin_cycles import BeginResult, CycleRequest
from tradewind.scheduler.use_cases.change_hub import ChangeHub
from tradewind.scheduler.use_cases.run_cycles import GROUP, GROUPS_AT_ONCE, RunCycles, RunResult


class SlowNodeTasks(DirectNodeTasks):
    """Accepts nothing until the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.accepting = asyncio.Event()

    async def submit(self, runs: Sequence[Submission], plans: Sequence[ComponentPlan]) -> list[SubmitAnswer]:
        answers = await super().submit(runs, plans)
        await self.accepting.wait()
        return answers


async def running(node_tasks: DirectNodeTasks) -> tuple[MemoryScheduler, RunCycles]:
    scheduler = MemoryScheduler(node_tasks)
    await scheduler.register()
    node_tasks.plans.update(digest for _, digest in (await scheduler.planned()).components)
    stores = scheduler.stores
    hub = ChangeHub(stores.changes, stores.cycles, stores.states)
    ends = AwaitEnds(scheduler.waiters, hub, stores.states, lambda _partition: True)
    return scheduler, RunCycles(scheduler.begin, scheduler.hand_over, ends, stores.states, scheduler.definitions)


async def test_runs_requested_during_a_submission_begin_together_after_it() -> None:
    node_tasks = SlowNodeTasks()
    scheduler, run = await running(node_tasks)
    first = asyncio.ensure_future(run([CycleRequest("f")]))
    await until(lambda: bool(node_tasks.asked), "the first cycle is being submitted")
    later = []
    for _ in range(3):
        later.append(asyncio.ensure_future(run([CycleRequest("f")])))
        await asyncio.sleep(0)
    assert (await scheduler.stores.flows.find(["f"]))[0].last_cycle == 0  # type: ignore[union-attr]
    node_tasks.accepting.set()
    answers = [await first, *[await each for each in later]]
    assert [answer.outcome for (answer,) in answers] == [BeginOutcome.BEGUN] * 4
    assert [len(names) for names, _ in node_tasks.asked] == [1, 3]


async def test_many_runs_requested_together_begin_during_a_submission() -> None:
    node_tasks = SlowNodeTasks()
    scheduler, run = await running(node_tasks)
    first = asyncio.ensure_future(run([CycleRequest("f")]))
    await until(lambda: bool(node_tasks.asked), "the first cycle is being submitted")
    later = [asyncio.ensure_future(run([CycleRequest("f")])) for _ in range(10)]
    await until(lambda: scheduler.stores.data.flows["f"].last_cycle == 10, "all have begun")
    assert [len(names) for names, _ in node_tasks.asked] == [1]
    node_tasks.accepting.set()
    await asyncio.gather(first, *later)
    assert sum(len(names) for names, _ in node_tasks.asked) == 11


async def test_next_groups_begin_while_the_first_is_submitted() -> None:
    node_tasks = SlowNodeTasks()
    scheduler, run = await running(node_tasks)
    read = 0

    def requests() -> Iterator[CycleRequest]:
        nonlocal read
        for _ in range(5 * GROUP):
            read += 1
            yield CycleRequest("f")

    many = asyncio.ensure_future(run(requests()))
    flow = scheduler.stores.data.flows["f"]
    await until(lambda: flow.last_cycle == GROUPS_AT_ONCE * GROUP - 1, "the next groups have begun")
    assert [len(names) for names, _ in node_tasks.asked] == [GROUP]
    for _ in range(100):
        await asyncio.sleep(0)
    assert flow.last_cycle == GROUPS_AT_ONCE * GROUP - 1, "more begin only once the first group is submitted"
    assert read == (GROUPS_AT_ONCE + 1) * GROUP, "later requests have yet to be read"
    node_tasks.accepting.set()
    assert len(await many) == 5 * GROUP


async def test_results_are_reported_in_groups_that_leave_others_turns() -> None:
    _, run = await running(DirectNodeTasks())
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    reported: list[tuple[list[RunResult], int]] = []

    async def report(group: list[RunResult]) -> None:
        reported.append((group, turns))

    beside = asyncio.ensure_future(others())
    results = await run([CycleRequest("f")] * (2 * GROUP + 1), report=report)
    beside.cancel()
    (first, at_first), (second, at_second), (third, at_third) = reported
    assert [len(group) for group, _ in reported] == [GROUP, GROUP, 1]
    assert results == [*first, *second, *third]
    assert [result.run.cycle for result in results if result.run is not None] == list(range(2 * GROUP + 1))
    assert at_first < at_second < at_third


async def test_waits_are_dropped_when_a_group_cannot_be_reported() -> None:
    scheduler, run = await running(DirectNodeTasks())

    async def report(group: list[RunResult]) -> None:
        assert len(scheduler.waiters.pending()) == len(group)
        raise ValueError("no answer for these")

    with pytest.raises(ValueError, match="no answer"):
        await run([CycleRequest("f")] * (2 * GROUP), 0.01, report)
    assert scheduler.waiters.pending() == []


async def test_small_call_does_not_wait_for_all_groups_of_a_large_one() -> None:
    node_tasks = SlowNodeTasks()
    scheduler, run = await running(node_tasks)
    many = asyncio.ensure_future(run([CycleRequest("f")] * (6 * GROUP)))
    flow = scheduler.stores.data.flows["f"]
    await until(lambda: flow.last_cycle == GROUPS_AT_ONCE * GROUP - 1, "some groups have begun")
    one = asyncio.ensure_future(run([CycleRequest("f")]))
    node_tasks.accepting.set()
    ((answer,), answers) = await asyncio.gather(one, many)
    assert answer.run is not None
    assert answer.run.cycle <= (GROUPS_AT_ONCE + 1) * GROUP
    assert len(answers) == 6 * GROUP
    assert {result.outcome for result in answers} == {BeginOutcome.BEGUN}


async def test_failure_of_all_groups_is_raised_once() -> None:
    _, run = await running(DirectNodeTasks())
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))

    async def away(wishes: Sequence[CycleRequest], *, wait: bool) -> list[BeginResult]:
        raise ConnectionError(f"no store for {len(wishes)}, {wait}")

    run._begin = away  # type: ignore[assignment]
    with pytest.raises(ConnectionError):
        await run([CycleRequest("f")] * (3 * GROUP))
    await until(lambda: not run._batcher.waiting, "the others have failed as well")
    await asyncio.sleep(0)
    gc.collect()
    assert reported == []


async def test_wait_times_out_while_the_cycle_runs() -> None:
    node_tasks = DirectNodeTasks()
    scheduler, run = await running(node_tasks)
    (result,) = await run([CycleRequest("f")], wait_s=0.01)
    assert result.state is not None
    assert not result.state.end_ms
    assert scheduler.waiters.pending() == []


async def test_wait_is_dropped_when_the_store_fails() -> None:
    scheduler, run = await running(DirectNodeTasks())
    before = CycleRequest("f", request=RememberedRequest("default", "f", "again", "payload"))
    await run([before])

    async def away(runs: Sequence[RunName]) -> list[ChainState | None]:
        raise ConnectionError(f"no store for {len(runs)}")

    run._await_ends._states = SimpleNamespace(load_many=away)
    with pytest.raises(ConnectionError):
        await run([CycleRequest("f"), before], wait_s=5)
    assert scheduler.waiters.pending() == []
