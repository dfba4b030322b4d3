"""Callers that submit several runs: what becomes of the others when one fails, or the caller goes away."""

import asyncio
from typing import Any

import pytest

from tests.unit.node_task_manager.conftest import Bench
from tests.waiting import until
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import Plan
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
