"""Claimed node tasks until their worker has them: read, held and renewed meanwhile, or taken back."""

import asyncio

import pytest
from msgspec import structs

from tests.unit.node_task_manager.conftest import Bench, outcome
from tests.unit.node_task_manager.faulty_store import always
from tests.waiting import until
from tradewind.node_task_manager.domain.fan_out import FanOut
from tradewind.node_task_manager.domain.handles import unknown_handles
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus, TaskError
from tradewind.node_task_manager.domain.plan import Plan, PlanEdge, PlanNode
from tradewind.node_task_manager.ports.work import Effects
from tradewind.node_task_manager.use_cases.connected_worker import Offer


async def test_node_is_assigned_once_its_plan_can_be_read(bench: Bench) -> None:
    worker, line = await bench.connect()
    plan = await bench.save("a", known=False)
    bench.store.refused["load"] = always
    await bench.accepted(plan)
    await until(lambda: bench.store.count("load"), "the plan is asked for")
    await bench.settled()
    assert (worker.room, line.nodes) == (9, [])
    del bench.store.refused["load"]
    await until(lambda: line.nodes == ["a"], "the node is handed out")


async def test_renewals_during_plan_read_do_not_repeat_read_or_assignment(bench: Bench) -> None:
    worker, line = await bench.connect()
    read = bench.store.unanswered["load"] = asyncio.Event()
    await bench.accepted(await bench.save("a", known=False))
    await until(lambda: bench.store.count("load"), "the plan is asked for")
    for sequence in (2, 3):
        bench.clock.advance(5000)
        await bench.connections.handle_message(worker, sequence, renewed=[])
        await until(lambda: line.acknowledged[-1:] == [sequence], "it has renewed")  # noqa: B023
    read.set()
    await until(lambda: line.nodes, "the node is handed out")
    await bench.settled()
    assert (line.nodes, bench.store.count("load")) == (["a"], 1)


async def test_lease_survives_long_plan_read_while_worker_renews_and_answers_pings(bench: Bench) -> None:
    worker, line = await bench.connect()
    bench.store.refused["load"] = always
    await bench.accepted(await bench.save("a", known=False))
    await until(lambda: bench.store.count("load"), "the plan is asked for")

    async def renewed_and_reaped(sequence: int) -> tuple[str, ...]:
        bench.clock.advance(20_000)
        await bench.connections.handle_message(worker, sequence, renewed=[])
        await until(lambda: line.acknowledged[-1:] == [sequence], "it has renewed")
        effects: Effects = await bench.store.reap()
        return effects.results

    assert [await renewed_and_reaped(sequence) for sequence in (2, 3)] == [(), ()]
    worker.unanswered_pings = 10
    assert [await renewed_and_reaped(sequence) for sequence in (4, 5)] == [(), ("flow:0:0:a",)]


async def test_node_task_stopped_before_assignment_never_begins(bench: Bench) -> None:
    worker, line = await bench.connect()
    bench.store.refused["load"] = always
    await bench.accepted(await bench.save("a", known=False))
    await until(lambda: bench.store.count("load"), "the plan is asked for")
    bench.dispatcher.apply(await bench.store.terminate("flow:0:0:a", "0", 0, "enough", "ann"))

    async def terminated() -> bool:
        (a,) = await bench.store.tasks(["flow:0:0:a"])
        return a is not None and a.status is NodeTaskStatus.TERMINATED

    await until(terminated, "it is terminated")
    del bench.store.refused["load"]
    await until(lambda: not worker.unnamed, "nothing is about to be handed out")
    assert (line.nodes, line.terminated, worker.room) == ([], [], 10)


async def test_worker_that_gets_node_task_again_has_as_much_room_as_before(bench: Bench) -> None:
    """It did not hear of the first attempt before its lease lapsed, and ends it without a report."""
    worker, line = await bench.connect()
    await bench.accepted(await bench.save("a", "b"))
    await until(lambda: len(line.nodes) == 2, "the nodes are handed out")
    room = worker.room
    bench.clock.advance(31_000)
    bench.dispatcher.apply(await bench.store.reap())
    bench.dispatcher.request_claim()
    await until(lambda: len(line.nodes) == 4, "they are handed out again")
    await bench.settled()
    assert worker.room == room
    assert {held.attempt for _, held in worker.held.values()} == {2}


async def test_assignment_that_its_worker_does_not_name_says_that_it_was_sent_before(bench: Bench) -> None:
    """Its span must not have the id of the first one's."""
    worker, line = await bench.connect()
    await bench.accepted(await bench.save("a"))
    await until(lambda: len(line.nodes) == 1, "the node is handed out")
    bench.clock.advance(5000)
    await bench.connections.handle_message(worker, 2, renewed=[])
    await until(lambda: len(line.nodes) == 2, "it is sent again")
    assert [(each.assignment.attempt, each.assignment.sent_before) for each in line.assigned] == [(1, False), (1, True)]


@pytest.mark.parametrize("size", [1, 5000])
async def test_wrong_plan_in_cache_fails_only_its_node(bench: Bench, size: int) -> None:
    worker, line = await bench.connect()
    edge = PlanEdge(0, "out", 1, "in")
    plan = Plan("p", (PlanNode("a", "noop"), PlanNode("b", "noop")), (edge,))
    await bench.store.save(plan)
    bench.plans.put(Plan("p", plan.nodes[:1], ()))
    await bench.accepted(plan)
    await until(lambda: line.nodes == ["a"], "the first node is given")
    shard, done = outcome(line.assigned[0])
    value = '"' + "x" * size + '"'
    await bench.connections.handle_message(worker, 2, [(shard, structs.replace(done, outputs=(("out", value),)))])

    async def failed() -> bool:
        (b,) = await bench.store.tasks(["flow:0:0:b"])
        return b is not None and b.error is not None and b.error.code == "INTERNAL"

    await until(failed, "the second node fails")
    assert (worker.room, line.nodes) == (10, ["a"])


@pytest.mark.parametrize("where", ["unanswered", "held_up"])
async def test_claim_for_worker_that_left_goes_to_another_worker(bench: Bench, where: str) -> None:
    """Whether the claim reaches the store before or after the worker's node tasks are given back."""
    leaving, its_line = await bench.connect("w1")
    go_on = getattr(bench.store, where)["submit"] = asyncio.Event()
    submitted = bench.submit(await bench.save("a"))
    await until(lambda: bench.store.count("submit"), "the claim is on its way")
    bench.connections.close(leaving)
    await until(lambda: bench.store.count("held_by"), "the grace is over")
    _, line = await bench.connect("w2")
    go_on.set()
    await submitted
    await until(lambda: line.nodes == ["a"], "the other worker has it")
    assert its_line.nodes == []


async def test_claim_for_broken_stream_is_assigned_once_to_new_stream(bench: Bench) -> None:
    older, _ = await bench.connect("w1")
    answered = bench.store.unanswered["submit"] = asyncio.Event()
    submitted = bench.submit(await bench.save("a"))
    await until(lambda: bench.store.count("submit"), "the node is claimed")
    bench.connections.close(older)
    newer, line = await bench.connect("w1")
    answered.set()
    await submitted
    await until(lambda: line.nodes, "the node is given to the new stream")
    await bench.settled()
    assert [(each.assignment.attempt, each.assignment.nonce in newer.held) for each in line.assigned] == [(2, True)]


@pytest.mark.parametrize("known", [True, False])
async def test_node_with_edge_from_unknown_output_handle_fails_without_running(bench: Bench, known: bool) -> None:
    """Otherwise everything after it would be skipped, as if a branch had not been taken, and the run would complete."""
    worker, line = await bench.connect(offers={"noop": Offer(eager=True, outputs=frozenset({"rows", "other"}))})
    plan = Plan("p", (PlanNode("a", "noop"), PlanNode("b", "noop")), (PlanEdge(0, "row", 1, "in"),))
    await bench.store.save(plan)
    if known:
        bench.plans.put(plan)
    await bench.accepted(plan)

    async def failed() -> TaskError | None:
        (a,) = await bench.store.tasks(["flow:0:0:a"])
        return a.error if a is not None else None

    await until(failed, "the node fails")
    assert await failed() == TaskError(
        "UNKNOWN_HANDLE",
        'an edge to "b" uses output handle "row", which node type "noop" does not have; did you mean "rows"?',
    )
    assert (worker.room, line.nodes) == (10, [])


async def test_worker_that_declares_no_handles_accepts_any_handle(bench: Bench) -> None:
    _, line = await bench.connect(offers={"noop": Offer(eager=True)})
    plan = Plan("p", (PlanNode("a", "noop"), PlanNode("b", "noop")), (PlanEdge(0, "row", 1, "in"),))
    await bench.store.save(plan)
    await bench.accepted(plan)
    await until(lambda: line.nodes == ["a"], "the node is given")
    assert line.assigned[0].eager.steps


async def test_node_with_unknown_handles_is_no_eager_step(bench: Bench) -> None:
    _, line = await bench.connect(offers={"noop": Offer(eager=True, outputs=frozenset({"out"}))})
    nodes = (PlanNode("a", "noop"), PlanNode("b", "noop"), PlanNode("c", "noop"))
    plan = Plan("p", nodes, (PlanEdge(0, "out", 1, "in"), PlanEdge(1, "nope", 2, "in")))
    await bench.store.save(plan)
    await bench.accepted(plan)
    await until(lambda: line.nodes == ["a"], "the first node is given")
    assert not line.assigned[0].eager.steps


async def test_errors_handle_exists_only_on_mapped_nodes(bench: Bench) -> None:
    declared = frozenset({("noop", frozenset({"out"}))})
    nodes = (PlanNode("a", "noop", fan_out=FanOut("list")), PlanNode("b", "noop"))
    assert not unknown_handles(Plan("p", nodes, (PlanEdge(0, "errors", 1, "in"),)), declared)
    assert unknown_handles(Plan("q", nodes, (PlanEdge(1, "errors", 0, "list"),)), declared)


async def test_node_task_stopped_while_its_plan_is_read_never_begins(bench: Bench) -> None:
    worker, line = await bench.connect()
    read = bench.store.unanswered["load"] = asyncio.Event()
    await bench.accepted(await bench.save("a", known=False))
    await until(lambda: bench.store.count("load"), "the plan is asked for")
    bench.dispatcher.apply(await bench.store.terminate("flow:0:0:a", "0", 0, "enough", "ann"))
    await until(lambda: not worker.held, "it is taken back")
    read.set()
    await bench.accepted(await bench.save("b"), flow_id="later")
    await until(lambda: line.nodes, "what comes later is handed out")
    assert line.nodes == ["b"]


async def test_worker_that_leaves_gets_nothing_whose_inputs_are_still_read(bench: Bench) -> None:
    """Its farewell is acknowledged once nothing more can come; what it was to get goes to others at once."""
    worker, line = await bench.connect()
    read = bench.store.unanswered["load"] = asyncio.Event()
    await bench.accepted(await bench.save("a", known=False))
    await until(lambda: bench.store.count("load"), "the plan is asked for")
    worker.capacity = 0
    await bench.connections.handle_message(worker, 2, renewed=[], awaited=True)
    await until(lambda: line.acknowledged[-1:] == [2], "its farewell is acknowledged")
    (a,) = await bench.store.tasks(["flow:0:0:a"])
    assert (a.status, a.lost, worker.held) == (NodeTaskStatus.PENDING, 0, {})
    read.set()
    _, other = await bench.connect("w2")
    await until(lambda: other.nodes == ["a"], "another worker gets it")
    assert line.nodes == []
