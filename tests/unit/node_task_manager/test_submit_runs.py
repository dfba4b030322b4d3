"""Callers that submit several runs: how they are answered, and what becomes of the others when one fails, or the
caller goes away."""

import asyncio
from typing import Any

import pytest
from msgspec import structs

from tests.unit.node_task_manager.conftest import Bench
from tests.waiting import until
from tradewind.node_task_manager.domain.component import RunSubmission, SubmitOutcome
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.use_cases import run_queue
from tradewind.node_task_manager.use_cases.submit import SubmitRuns
from tradewind.server.partitions import shard_of

USERS = {shard_of(user, 2): user for user in map(str, range(20))}
"""A user of each shard."""


def submission(plan: Plan, flow_id: str, user_id: str) -> RunSubmission:
    return RunSubmission(RunName(flow_id, 0, 0), "r0", user_id, (("0", plan.digest),), 3, "")


async def test_runs_of_a_caller_that_has_gone_are_not_stored(bench: Bench) -> None:
    plan = await bench.save("a")
    answered = bench.store.unanswered["submit"] = asyncio.Event()
    first = bench.submit(plan, flow_id="first")
    await until(lambda: bench.store.count("submit"), "one is under way")
    runs = [submission(plan, f"gone{at}", USERS[0]) for at in range(3)]
    calling = asyncio.create_task(SubmitRuns(bench.dispatchers, bench.plans)(runs, []))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    answered.set()
    await first
    await bench.settled()
    assert [[run.run.flow_id for run in args[0]] for name, args in bench.store.calls if name == "submit"] == [["first"]]


async def test_runs_of_several_scripts_and_shards_are_answered_in_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_queue, "MAX_RUNS", 2)
    plan = await bench.save("a")
    await bench.stores[1].save(plan)
    runs = [submission(plan, f"f{at}", USERS[at % 2]) for at in range(10)]
    runs[7] = structs.replace(runs[7], components=(("0", "nobody-knows"),))
    results = await SubmitRuns(bench.dispatchers, bench.plans)(runs, [])
    unknown = [at for at, result in enumerate(results) if result.outcome is SubmitOutcome.PLAN_UNKNOWN]
    assert (len(results), unknown) == (10, [7])
    assert bench.store.count("submit") > 1


async def test_caller_whose_runs_were_refused_in_part_gets_the_error_and_no_more_of_them_are_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_queue, "MAX_RUNS", 2)
    plan = await bench.save("a")
    bench.store.refused["submit"] = lambda runs, _vacancies: any(run.run.flow_id == "f3" for run in runs)
    runs = [submission(plan, f"f{at}", USERS[0]) for at in range(6)]
    with pytest.raises(ConnectionError):
        await SubmitRuns(bench.dispatchers, bench.plans)(runs, [])
    await bench.accepted(plan, flow_id="another")
    submitted = [[run.run.flow_id for run in args[0]] for name, args in bench.store.calls if name == "submit"]
    assert submitted == [["f0", "f1"], ["f2", "f3"], ["another"]]


async def test_error_of_one_shard_does_not_wait_for_another(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = await bench.save("a")
    await bench.stores[1].save(plan)
    answered = bench.store.unanswered["submit"] = asyncio.Event()

    async def fail(*_: Any) -> None:
        raise ConnectionError("down")

    monkeypatch.setattr(bench.stores[1], "submit", fail)
    runs = [submission(plan, "a", USERS[0]), submission(plan, "b", USERS[1])]
    with pytest.raises(ConnectionError):
        await SubmitRuns(bench.dispatchers, bench.plans)(runs, [])
    answered.set()
