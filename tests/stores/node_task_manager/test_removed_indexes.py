"""An index of another type that belongs to one user, flow or limit stops nobody else, and makes way for itself."""

from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from tests.stores.node_task_manager.raw_keys import BASE
from tests.stores.node_task_manager.shards import completed, plan_of
from tests.stores.node_task_manager.wards import Ward
from tests.waiting import until
from tradewind.node_task_manager.domain.ad_hoc import AdHocWork
from tradewind.node_task_manager.domain.component import ComponentStatus, RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.ports.reading import Line
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind
from tradewind.server.redis.client import Client
from tradewind.server.redis.subscriber import Subscriber

HOUR_MS = 3_600_000
CHANNEL = f"{BASE}wake"
PLAN = plan_of("a.out>b.in")
TASK = AdHocWork("bob", "noop", ("{}",))
TASK_RUN = TASK.run("t")
INDEXES = (
    *("ready:noop:default", "ring:noop", "left:noop", "slots:user:default", "slots:flow:flow", "events:3"),
    *("flow_logs:flow", "last_events", "ready_types", "inflight", "node_tasks_list", "worker_tasks:w1"),
    *("todo", "delayed", "flow_runs:flow"),
)


class Removed:
    """The keys that scripts say they have removed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._received: list[str] = []

    def receive(self, _channel: str, message: bytes) -> None:
        self._received.append(message.decode())

    async def keys(self) -> set[str]:
        """Return their names without prefix."""
        await self._client.publish(CHANNEL, "mark")
        await until(lambda: "mark" in self._received, "all messages have come")
        prefix = f"d:{BASE}"
        return {each.removeprefix(prefix) for each in self._received if each.startswith(prefix)}


@pytest_asyncio.fixture
async def removed(ward: Ward) -> AsyncIterator[Removed]:
    """Hears what scripts say from now on."""
    subscriber, heard = Subscriber(ward.server.url()), Removed(ward.admin)
    subscriber.start()
    await subscriber.subscribe(CHANNEL, heard.receive)
    yield heard
    await subscriber.stop()


@pytest.mark.parametrize("index", INDEXES)
async def test_index_of_another_type_stops_nobody_else(ward: Ward, index: str, removed: Removed) -> None:
    await ward.configure(max_running_per_user=50, max_running_per_flow=50)
    await ward.submit(PLAN)
    (mine,) = await ward.take()
    await ward.shard.save(TASK.plan(TASK_RUN))
    await ward.do("DEL", index)
    await ward.do("HSET" if index != "last_events" else "RPUSH", index, "x", "broken")
    mixed = [
        RunSubmission(RunName(flow, 1, 0), f"r-{flow}", user, (("0", PLAN.digest),), 3, begun_ms=ward.clock())
        for flow, user in (("flow", "default"), ("other", "bob"))
    ]
    submitted = await ward.shard.submit([*mixed, TASK.submission(TASK_RUN)])
    assert [each.outcome for each in submitted.results] == ["accepted"] * 3
    await ward.shard.record([], [Line(mine.task_id, mine.attempt, mine.nonce, "INFO", "node", "hello", 1)])
    outcomes, given = [completed(mine)], await ward.take()
    for _ in range(3):
        outcomes += [completed(each) for each in given]
        results = (await ward.shard.complete(outcomes)).results
        assert list(results) == [""] * len(outcomes)
        outcomes, given = [], await ward.take()
    assert len(await ward.redis.read({3: "0", 4: "0"}, 99)) >= 2
    runs = [(RunName("flow", 0, 0), "0"), (RunName("other", 1, 0), "0"), (TASK_RUN, "0")]
    found = await ward.shard.components(runs)
    assert [each and each.status for each in found] == [ComponentStatus.FINISHED] * 3
    assert await removed.keys() == {index}
    for _ in range(3):
        await ward.found(mend=True)
    assert await ward.found() == []


async def test_events_of_another_type_are_read_as_none_until_the_next_one(ward: Ward) -> None:
    await ward.do("SET", "events:4", "broken")
    await ward.submit(plan_of("a"))
    (given,) = await ward.take()
    await ward.complete(given)
    (event,) = await ward.redis.read({3: "0", 4: "0"}, 99)
    assert event.partition == 3
    await ward.redis.acknowledge({3: event.event_id, 4: event.event_id})
    assert await ward.redis.read({3: "0"}, 99) == []


@pytest.mark.parametrize("index", ["to_clean", "ended_runs", "walks", "cleaner", "flow_runs:flow"])
async def test_index_of_another_type_keeps_nothing_from_being_cleaned(ward: Ward, index: str) -> None:
    await ward.submit(PLAN)
    await ward.do("DEL", index)
    await ward.do("HSET", index, "x", "broken")
    ward.clock.advance(HOUR_MS)
    assert (await ward.shard.clean("c", 0)).leads
    ward.clock.advance(HOUR_MS)
    while (await ward.shard.clean("c", 0)).more:
        pass


@pytest.mark.parametrize("index", ["walks", "purged:flow", "flow_runs:flow"])
async def test_index_of_another_type_keeps_no_flow_from_being_deleted(ward: Ward, index: str) -> None:
    await ward.do("HSET", index, "x", "broken")
    while not (await ward.shard.purge("flow", 5)).done:
        pass


@pytest.mark.parametrize("mark", ["stop:flow:0:0", "stop:flow:0:0:0"])
async def test_mark_of_another_type_keeps_no_run_from_being_stopped(ward: Ward, mark: str) -> None:
    await ward.submit(PLAN)
    await ward.do("HSET", mark, "x", "broken")
    await ward.shard.stop(RunName("flow", 0, 0), "r0", "0" if mark.count(":") == 4 else "", "enough", "ann", 1000)
    assert await ward.statuses(PLAN) == {"a": "skipped", "b": "skipped"}


async def test_budget_of_another_type_keeps_no_attempt_from_failing(ward: Ward) -> None:
    plan = plan_of("a", digest="retried", retry=RetryPolicy(2, initial_ms=1000, jitter=0))
    await ward.submit(plan)
    (given,) = await ward.take()
    await ward.do("DEL", "retries:flow")
    await ward.do("LPUSH", "retries:flow", "broken")
    failed = Outcome(given.task_id, 1, given.nonce, OutcomeKind.FAILED, (), TaskError("NODE_ERROR", "broke"))
    assert (await ward.shard.complete([failed])).results == ("",)
    assert await ward.statuses(plan) == {"a": "pending"}


@pytest.mark.parametrize(
    "entry",
    [b"broken", *map(msgspec.msgpack.encode, ([], {"stop": 1}, ["x", *"12345"], ["stop", {}, "0", "r", 0, 0]))],
)
async def test_work_that_is_none_stops_nobody_and_is_found(ward: Ward, entry: bytes) -> None:
    batch = AdHocWork("bob", "noop", ("{}",), batch=True)
    run = batch.run("b")
    await ward.shard.save(batch.plan(run))
    await ward.shard.submit([batch.submission(run)])
    (given,) = await ward.take()
    assert await ward.complete(given, out="1") == ""
    await ward.do("RPUSH", "todo", entry)
    assert await ward.found() == [("todo-of-nothing", "an entry")]
    assert await ward.shard.delete_batch(run, "bob") == "deleted"
    assert await ward.submit(PLAN) == "accepted"
    assert await ward.found(mend=True) == []
    assert len(await ward.take()) == 1
