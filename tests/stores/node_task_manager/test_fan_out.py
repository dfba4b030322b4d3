"""Nodes that run once for each item of a list: how a store handles their offers and items."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.servers import RedisServer
from tests.stores.node_task_manager.invariants import check_invariants, check_nothing_left
from tests.stores.node_task_manager.shards import Bench, memory_shard, redis_shard
from tradewind.node_task_manager.domain.component import ComponentStatus
from tradewind.node_task_manager.domain.fan_out import FanOut, FanOutOffer, FanOutStep, StepKind
from tradewind.node_task_manager.domain.item_counts import ItemCounts
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus, TaskError
from tradewind.node_task_manager.domain.plan import FailurePolicy, Plan, PlanEdge, PlanNode
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.ports.work import Assignment, Effects, Outcome, OutcomeKind, Vacancy
from tradewind.server.clock import ManualClock

RUN = RunName("flow", 0, 0)
MAPPED = "flow:0:0:map"
LEASE_MS = 5_000
LIMITS = Limits(fan_out_lease_ms=LEASE_MS, output_bytes=100)


@pytest_asyncio.fixture
async def bench(store: RedisServer | None, clock: ManualClock) -> AsyncIterator[Bench]:
    """A shard without records, with limits that are easily reached."""
    if store is None:
        yield Bench(memory_shard(clock, LIMITS), clock)
        return
    yield Bench(redis_shard(store, clock, LIMITS), clock)
    await check_invariants(store)


def plan(
    max_parallel: int = 2,
    policy: FailurePolicy = FailurePolicy.SKIP_DOWNSTREAM,
    attempts: int = 1,
    shared: bool = False,
) -> Plan:
    """Return a source, a node that runs over its list, and a sink for the results; with `shared` also other inputs."""
    retry = RetryPolicy(attempts, initial_ms=1_000, jitter=0) if attempts > 1 else None
    nodes = (
        PlanNode("list", "noop"),
        PlanNode("map", "noop", retry=retry, fan_out=FanOut("items", max_parallel)),
        PlanNode("sink", "noop"),
    )
    edges: tuple[PlanEdge, ...] = (PlanEdge(0, "out", 1, "items"), PlanEdge(1, "out", 2, "in"))
    if shared:
        edges = (*edges, PlanEdge(0, "short", 1, "short"), PlanEdge(0, "long", 1, "long"))
    return Plan(f"mapped {max_parallel} {policy} {attempts} {shared}", nodes, edges, policy)


async def offered(bench: Bench, of: Plan) -> FanOutOffer:
    """Submit a run whose list has arrived, and return the offer to split it."""
    await bench.submit(of)
    (source,) = await bench.take()
    outputs = (("out", "[1,2]"), ("short", '"s"'), ("long", f'"{"l" * 200}"'))
    done = Outcome(source.task_id, source.attempt, source.nonce, OutcomeKind.COMPLETED, outputs)
    (offer,) = (await bench.shard.complete([done])).fan_outs
    return offer


def split(offer: FanOutOffer, count: int, need: int | None = None) -> FanOutStep:
    """Split a list of numbers, all of which must complete unless `need` says otherwise."""
    items = tuple(str(at) for at in range(count))
    return FanOutStep(offer.task_id, offer.nonce, StepKind.SPLIT, items, count if need is None else need)


def joined(offer: FanOutOffer, value: str = "[]") -> FanOutStep:
    return FanOutStep(offer.task_id, offer.nonce, StepKind.COMPLETED, outputs=(("out", value),))


async def begun(bench: Bench, of: Plan, count: int, need: int | None = None) -> Effects:
    """Submit a run and split its list."""
    return await bench.shard.fan_out([split(await offered(bench, of), count, need)])


async def end(bench: Bench, given: Assignment, kind: OutcomeKind = OutcomeKind.COMPLETED, value: str = "1") -> Effects:
    """End an attempt."""
    error = None if kind is OutcomeKind.COMPLETED else TaskError("NODE_ERROR", "broke", "ValueError")
    outputs = (("out", value),) if error is None else ()
    return await bench.shard.complete([Outcome(given.task_id, given.attempt, given.nonce, kind, outputs, error)])


async def mapped(bench: Bench) -> NodeTask:
    """Return the node task of the mapped node."""
    (task,) = await bench.shard.tasks([MAPPED])
    assert task is not None
    return task


async def items(bench: Bench, count: int) -> list[str]:
    """Return the statuses of items, "-" for items without a record."""
    tasks = await bench.shard.tasks([f"{MAPPED}:{at}" for at in range(count)])
    return [task.status.value if task is not None else "-" for task in tasks]


async def test_ready_mapped_node_is_offered_and_given_to_no_worker(bench: Bench) -> None:
    offer = await offered(bench, plan())
    assert (offer.task_id, offer.component_id, offer.index, offer.total) == (MAPPED, "0", 1, 0)
    assert await bench.take() == []
    task = await mapped(bench)
    assert (task.status, task.items, task.attempt) == (NodeTaskStatus.PENDING, None, 0)


async def test_items_become_ready_in_order_up_to_max_parallel(bench: Bench) -> None:
    effects = await begun(bench, plan(max_parallel=2), 5)
    assert effects.results == ("",)
    assert await items(bench, 5) == ["pending", "pending", "-", "-", "-"]
    assert (await mapped(bench)).items == ItemCounts(5, 5, begun=2)
    first, second = await bench.take()
    assert [(each.task_id, each.inputs) for each in (first, second)] == [
        (f"{MAPPED}:0", ((0, "0"),)),
        (f"{MAPPED}:1", ((0, "1"),)),
    ]
    assert await bench.take() == []
    await end(bench, second)
    (third,) = await bench.take()
    assert third.task_id == f"{MAPPED}:2"
    assert await items(bench, 5) == ["running", "completed", "running", "-", "-"]


async def test_items_that_are_ready_together_begin_in_the_order_of_the_list(bench: Bench) -> None:
    await begun(bench, plan(max_parallel=100), 25)
    taken = [given.task_id for count in (1, 3, 30) for given in await bench.take(count)]
    assert taken == [f"{MAPPED}:{at}" for at in range(25)]


async def test_items_that_are_handed_out_at_once_are_in_the_order_of_the_list(bench: Bench) -> None:
    vacancy = Vacancy("w1", 0, 30, ("noop",))
    effects = await bench.shard.fan_out([split(await offered(bench, plan(max_parallel=100)), 25)], [vacancy])
    assert [given.task_id for given in effects.assignments] == [f"{MAPPED}:{at}" for at in range(25)]


async def test_worker_that_ends_an_item_gets_the_next_in_the_same_call(bench: Bench) -> None:
    effects = await bench.shard.fan_out([split(await offered(bench, plan(1)), 3)], [Vacancy("w1", 0, 5, ("noop",))])
    (given,) = effects.assignments
    done = Outcome(given.task_id, given.attempt, given.nonce, OutcomeKind.COMPLETED, (("out", "1"),))
    effects = await bench.shard.complete([done], [Vacancy("w1", 0, 5, ("noop",))])
    assert [each.task_id for each in effects.assignments] == [f"{MAPPED}:1"]


async def test_ended_items_are_joined_and_the_successor_gets_their_results(bench: Bench) -> None:
    await begun(bench, plan(), 2, need=1)
    first, second = await bench.take()
    assert (await end(bench, first, OutcomeKind.FAILED)).fan_outs == ()
    (offer,) = (await end(bench, second)).fan_outs
    assert (offer.task_id, offer.total, offer.losses) == (MAPPED, 2, 1)
    assert (await mapped(bench)).status is NodeTaskStatus.RUNNING
    assert (await bench.shard.fan_out([joined(offer, "[null,1]")])).results == ("",)
    (sink,) = await bench.take()
    assert sink.inputs == ((1, "[null,1]"),)
    await end(bench, sink)
    (component,) = await bench.shard.components([(RUN, "0")])
    assert component is not None
    # Items do not count as nodes.
    assert (component.nodes, component.completed, component.failed) == (3, 3, 0)
    assert component.status is ComponentStatus.FINISHED


async def test_other_inputs_are_shared_by_all_items(bench: Bench) -> None:
    await begun(bench, plan(shared=True), 2)
    first, second = await bench.take()
    # Short values are included; larger ones are read from their source.
    assert first.inputs == ((0, "0"), (2, '"s"'), (3, "@"))
    assert second.inputs == ((0, "1"), (2, '"s"'), (3, "@"))


async def test_over_a_piece_of_other_inputs_are_shared_by_all_items(bench: Bench) -> None:
    of = plan(shared=True)
    many = tuple(PlanEdge(0, "short", 1, f"short{at}") for at in range(600))
    of = Plan("many inputs", of.nodes, of.edges + many)
    await bench.submit(of)
    (source,) = await bench.take()
    outputs = (("out", "[1]"), ("short", '"s"'), ("long", f'"{"l" * 200}"'))
    effects = await bench.shard.complete(
        [Outcome(source.task_id, source.attempt, source.nonce, OutcomeKind.COMPLETED, outputs)]
    )
    while not effects.fan_outs:
        effects = await bench.shard.claim()
    await bench.shard.fan_out([split(effects.fan_outs[0], 1)])
    (item,) = await bench.take()
    assert (item.inputs, item.inputs_outside) == ((), True)
    (task,) = await bench.shard.tasks([item.task_id], inputs=True)
    assert task is not None
    shared = dict.fromkeys([2, *range(4, 604)], '"s"')
    assert dict(task.inputs) == shared | {0: "0", 3: "@"}


async def test_items_are_given_out_until_they_are_large_together(redis_bench: Bench) -> None:
    offer = await offered(redis_bench, plan(max_parallel=60))
    values = (f'"{"v" * 300_000}"', *[f'"{"v" * 100_000}"'] * 59)
    step = FanOutStep(offer.task_id, offer.nonce, StepKind.SPLIT, values, 60)
    given = (await redis_bench.shard.fan_out([step], [Vacancy("w1", 0, 60, ("noop",))])).assignments
    # A value that is large by itself is read outside the claim.
    assert [each.inputs_outside for each in given] == [True] + [False] * 21
    # From a queue, 32 are taken at once.
    assert [len(await redis_bench.take()) for _ in range(3)] == [32, 6, 0]


async def test_offer_that_nobody_carries_out_is_made_again(bench: Bench) -> None:
    lost = await offered(bench, plan())
    bench.clock.advance(LEASE_MS - 1)
    assert (await bench.shard.claim()).fan_outs == ()
    bench.clock.advance(1)
    (again,) = (await bench.shard.claim()).fan_outs
    assert (again.task_id, again.nonce != lost.nonce) == (MAPPED, True)
    assert (await bench.shard.fan_out([split(lost, 3)])).results == ("a newer offer was made",)
    assert (await mapped(bench)).items is None
    assert (await bench.shard.fan_out([split(again, 3)])).results == ("",)
    # Once carried out, it is not offered again, and repeating the step changes nothing.
    assert (await bench.shard.fan_out([split(again, 7)])).results == ("a newer offer was made",)
    bench.clock.advance(LEASE_MS)
    assert (await bench.shard.claim()).fan_outs == ()
    assert (await mapped(bench)).items == ItemCounts(3, 3, begun=2)


async def test_join_offer_is_made_again_and_carried_out_once(bench: Bench) -> None:
    await begun(bench, plan(), 1)
    (item,) = await bench.take()
    (lost,) = (await end(bench, item)).fan_outs
    bench.clock.advance(LEASE_MS)
    (again,) = (await bench.shard.claim()).fan_outs
    assert (again.total, again.losses) == (1, 0)
    assert (await bench.shard.fan_out([joined(lost), joined(again, "[1]"), joined(again, "[2]")])).results == (
        "a newer offer was made",
        "",
        "the node task is completed",
    )
    assert await bench.shard.outputs([(MAPPED, "out")]) == ["[1]"]


async def test_each_item_has_its_own_attempts(bench: Bench) -> None:
    await begun(bench, plan(attempts=2), 2)
    first, second = await bench.take()
    await end(bench, first, OutcomeKind.FAILED)
    await end(bench, second)
    assert await items(bench, 2) == ["pending", "completed"]
    # An item that waits for its next attempt keeps its place, because it is open.
    assert (await mapped(bench)).items == ItemCounts(2, 2, begun=2, completed=1)
    bench.clock.advance(1_000)
    await bench.shard.claim()
    (again,) = await bench.take()
    assert (again.task_id, again.attempt) == (f"{MAPPED}:0", 2)
    assert len((await end(bench, again)).fan_outs) == 1


async def test_mapped_node_fails_and_stops_its_items_when_too_few_can_complete(bench: Bench) -> None:
    await begun(bench, plan(max_parallel=3), 10, need=9)
    first, second, third = await bench.take()
    await end(bench, first)
    await end(bench, second, OutcomeKind.FAILED)
    (fourth, fifth) = await bench.take()
    effects = await end(bench, third, OutcomeKind.FAILED)
    assert sorted(each.task_id for each in effects.terminations) == [fourth.task_id, fifth.task_id]
    assert (await mapped(bench)).status is NodeTaskStatus.RUNNING
    assert await bench.take() == []
    await end(bench, fourth, OutcomeKind.TERMINATED)
    await end(bench, fifth)
    task = await mapped(bench)
    assert (task.status, task.items) == (
        NodeTaskStatus.FAILED,
        ItemCounts(10, 9, 5, completed=2, failed=2, cancelled=1),
    )
    assert task.error == TaskError(
        "ITEMS_FAILED",
        "at least 9 of 10 items must complete; 2 failed, 1 cancelled, 5 never begun; the first is item 1 "
        "(failed): ValueError: broke",
    )
    assert await bench.statuses(plan(max_parallel=3)) == {"list": "completed", "map": "failed", "sink": "skipped"}


async def test_failed_mapped_node_says_why_its_first_item_was_not_retried(bench: Bench) -> None:
    await begun(bench, plan(max_parallel=1, attempts=2), 1)
    for _ in range(2):
        (only,) = await bench.take()
        await end(bench, only, OutcomeKind.FAILED)
        bench.clock.advance(1_000)
    error = (await mapped(bench)).error
    assert error is not None
    assert error.message.endswith("(failed): ValueError: broke, not tried again: all 2 attempts failed")


async def test_failed_mapped_node_quotes_the_beginning_of_a_long_error(bench: Bench) -> None:
    await begun(bench, plan(), 1)
    (only,) = await bench.take()
    long = TaskError("NODE_ERROR", "ä" * 400, "E")
    await bench.shard.complete([Outcome(only.task_id, only.attempt, only.nonce, OutcomeKind.FAILED, error=long)])
    error = (await mapped(bench)).error
    assert error is not None
    assert error.message.endswith("(failed): E: " + "ä" * 248), "500 bytes at most, and no piece of a character"


async def test_mapped_node_fails_when_item_results_are_too_large_together(bench: Bench) -> None:
    await begun(bench, plan(max_parallel=1), 5)
    for _ in range(3):
        (item,) = await bench.take()
        await end(bench, item, value=f'"{"v" * 40}"')
    task = await mapped(bench)
    assert task.status is NodeTaskStatus.FAILED
    assert task.error == TaskError(
        "OUTPUT_TOO_LARGE",
        "the results of 3 items have over 100 bytes in total: return less data, or a reference to it",
    )
    assert await items(bench, 5) == ["completed"] * 3 + ["-", "-"]


async def test_mapped_node_fails_on_a_split_error_and_completes_on_an_empty_list(bench: Bench) -> None:
    offer = await offered(bench, plan())
    error = TaskError("NODE_ERROR", "is no list", "InvalidInput")
    await bench.shard.fan_out([FanOutStep(offer.task_id, offer.nonce, StepKind.FAILED, error=error)])
    assert ((await mapped(bench)).status, (await mapped(bench)).error) == (NodeTaskStatus.FAILED, error)
    assert [line.message for line in await bench.shard.lines(RUN, "", 9)] == [error.summary]
    await bench.submit(plan(), cycle=1)
    (source,) = await bench.take()
    (offer,) = (await end(bench, source)).fan_outs
    assert (await bench.shard.fan_out([joined(offer)])).results == ("",)
    assert (await bench.statuses(plan(), cycle=1))["map"] == "completed"


@pytest.mark.parametrize("how", ["node", "component"])
async def test_a_stop_ends_open_items_and_no_others_begin(bench: Bench, how: str) -> None:
    await begun(bench, plan(max_parallel=3), 10)
    (running,) = await bench.take(1)
    if how == "node":
        effects = await bench.shard.terminate(MAPPED, "0", 1, "enough", "ann")
    else:
        effects = await bench.shard.stop(RUN, "r0", "", "enough", "ann", 10_000)
    assert [each.task_id for each in effects.terminations] == [running.task_id]
    assert await items(bench, 10) == ["running", "skipped", "skipped"] + ["-"] * 7
    assert (await mapped(bench)).status is NodeTaskStatus.RUNNING
    bench.clock.advance(10_000)
    await bench.shard.reap()
    task = await mapped(bench)
    assert (task.status, task.reason) == (NodeTaskStatus.TERMINATED, "enough")
    assert (await bench.statuses(plan(max_parallel=3)))["sink"] == "skipped"


async def test_stop_ends_a_mapped_node_while_it_is_offered(bench: Bench) -> None:
    offer = await offered(bench, plan())
    await bench.shard.stop(RUN, "r0", "", "enough", "ann", 10_000)
    assert (await mapped(bench)).status is NodeTaskStatus.SKIPPED
    assert (await bench.shard.fan_out([split(offer, 3)])).results == ("the node task is skipped",)
    await bench.submit(plan(), cycle=1)
    (source,) = await bench.take()
    (offer,) = (await end(bench, source)).fan_outs
    await bench.shard.fan_out([split(offer, 1)])
    (item,) = await bench.take()
    (offer,) = (await end(bench, item)).fan_outs
    await bench.shard.terminate(offer.task_id, "0", 1, "enough", "ann")
    assert (await bench.statuses(plan(), cycle=1))["map"] == "terminated"
    assert (await bench.shard.fan_out([joined(offer)])).results == ("the node task is terminated",)


async def test_stopped_item_counts_as_cancelled(bench: Bench) -> None:
    await begun(bench, plan(max_parallel=1), 3, need=2)
    await bench.shard.terminate(f"{MAPPED}:0", "0", 1, "not this one", "ann")
    assert (await bench.shard.terminate(f"{MAPPED}:2", "0", 1, "no", "ann")).results == ("unknown",)
    assert await items(bench, 3) == ["skipped", "pending", "-"]
    assert (await mapped(bench)).items == ItemCounts(3, 2, begun=2, cancelled=1)


async def test_failed_mapped_node_stops_a_fail_fast_flow_but_a_failed_item_does_not(bench: Bench) -> None:
    await begun(bench, plan(max_parallel=2, policy=FailurePolicy.FAIL_FAST), 2, need=1)
    first, second = await bench.take()
    await end(bench, first, OutcomeKind.FAILED)
    (component,) = await bench.shard.components([(RUN, "0")])
    assert component is not None
    assert component.stop is None
    await end(bench, second, OutcomeKind.FAILED)
    (component,) = await bench.shard.components([(RUN, "0")])
    assert component is not None
    assert component.stop is not None
    assert component.status is ComponentStatus.FINISHED


async def test_outcome_for_a_mapped_node_itself_is_refused(bench: Bench) -> None:
    await begun(bench, plan(), 3)
    first, *_ = await bench.take()
    forged = Outcome(MAPPED, 9, first.nonce, OutcomeKind.COMPLETED, (("out", "[]"),))
    (refused,) = (await bench.shard.complete([forged])).results
    assert refused == "the node runs once for each item of a list; only its items are given to workers"
    assert (await mapped(bench)).status is NodeTaskStatus.RUNNING


async def test_purge_removes_items(bench: Bench, store: RedisServer | None) -> None:
    await begun(bench, plan(max_parallel=3), 10)
    (running,) = await bench.take(1)
    purge = await bench.shard.purge("flow")
    # The component, two of its three nodes (nothing has reached the sink), and three items.
    assert (purge.done, purge.removed) == (True, 6)
    assert [each.task_id for each in purge.effects.terminations] == [running.task_id]
    assert await items(bench, 3) == ["-"] * 3
    if store is not None:
        bench.clock.advance(25 * 3600 * 1000)
        await bench.shard.reap()
        await check_nothing_left(store)
