"""Splitting lists and joining results, over a store in memory that may fail."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.node_task_manager.conftest import Bench
from tests.waiting import until
from tradewind.node_task_manager.domain.fan_out import FanOut, FanOutOffer, FanOutStep, StepKind
from tradewind.node_task_manager.domain.item_counts import ItemCounts
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus, TaskError
from tradewind.node_task_manager.domain.plan import Plan, PlanEdge, PlanNode
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind
from tradewind.node_task_manager.use_cases.fan_out import FanOuts, split_list
from tradewind.node_task_manager.use_cases.plans import PlanCache
from tradewind.node_task_manager.use_cases.report import Report

OVER = FanOut("in")


def plan(fan_out: FanOut = OVER, *, errors: bool = False) -> Plan:
    """Return a plan of a list, a node that runs over it, and one that gets the results."""
    nodes = (PlanNode("list", "noop"), PlanNode("map", "noop", fan_out=fan_out), PlanNode("sink", "noop"))
    edges = (PlanEdge(0, "out", 1, "in"), PlanEdge(1, "out", 2, "in"))
    return Plan("mapped", nodes, (*edges, PlanEdge(1, "errors", 2, "errors")) if errors else edges)


async def run(bench: Bench, of: Plan, value: str, *, failing: tuple[str, ...] = (), size: int = 1) -> NodeTask:
    """Run a flow whose list is `value`: each item emits itself `size` times, or fails.

    Returns the ended node task of the mapped node.
    """
    worker, line = await bench.connect(capacity=20)
    await bench.store.save(of)
    bench.plans.put(of)
    await bench.accepted(of)
    answered = 0

    async def ended() -> bool:
        nonlocal answered
        for ready in line.assigned[answered:]:
            answered += 1
            given = ready.assignment
            values = dict(ready.inputs)
            item = value if ready.node.node_id == "list" else values.get("in", ("null",))[0]
            kind, error = OutcomeKind.COMPLETED, None
            if ready.node.node_id == "map" and item in failing:
                kind, error = OutcomeKind.FAILED, TaskError("NODE_ERROR", f"will not have {item}", "ValueError")
            if ready.node.node_id == "map" and error is None and size > 1:
                item = json.dumps(item * size)
            outputs = (("out", item),) if error is None else ()
            outcome = Outcome(given.task_id, given.attempt, given.nonce, kind, outputs, error)
            bench.dispatcher.report(Report(worker, [outcome]))
        (task,) = await bench.store.tasks(["flow:0:0:map"])
        return task is not None and task.status.terminal

    await until(ended, "the mapped node has ended")
    (task,) = await bench.store.tasks(["flow:0:0:map"], outputs=True)
    assert isinstance(task, NodeTask)
    return task


async def test_item_outputs_are_joined_in_order(bench: Bench) -> None:
    values = [f'{{"n": {at}}}' for at in range(30)]
    task = await run(bench, plan(FanOut("in", 3)), f" [ {' ,'.join(values)} ] ")
    assert task.items == ItemCounts(30, 30, begun=30, completed=30)
    # Each value exactly as it came, blanks included: nothing is decoded on the way.
    assert task.outputs == (("out", f"[{','.join(values)}]"),)


async def test_failed_items_are_null_and_listed_as_errors(bench: Bench) -> None:
    task = await run(bench, plan(FanOut("in", least_ratio="0.5")), "[1,2,3,4]", failing=("2", "4"))
    errors = [
        {
            "item": at,
            "status": "failed",
            "code": "NODE_ERROR",
            "type": "ValueError",
            "message": f"will not have {at + 1}",
        }
        for at in (1, 3)
    ]
    assert [(handle, json.loads(value)) for handle, value in task.outputs] == [
        ("errors", errors),
        ("out", [1, None, 3, None]),
    ]


async def test_at_most_100_failed_items_are_listed(bench: Bench) -> None:
    numbers = [str(at) for at in range(150)]
    every = FanOut("in", least_count=0)
    task = await run(bench, plan(every), f"[{','.join(numbers)}]", failing=tuple(numbers))
    assert task.status is NodeTaskStatus.COMPLETED
    assert [error["item"] for error in json.loads(dict(task.outputs)["errors"])] == list(range(100))


async def test_empty_list_gives_empty_list_on_every_connected_handle(bench: Bench) -> None:
    task = await run(bench, plan(FanOut("in", least_count=3), errors=True), "[]")
    assert task.outputs == (("errors", "[]"), ("out", "[]"))


async def test_joined_results_over_the_limit_fail_the_node(bench: Bench) -> None:
    task = await run(bench, plan(), "[1,2,3]", size=400_000)
    assert task.error is not None
    assert task.error.code == "OUTPUT_TOO_LARGE"
    assert "return less data, or a reference to it" in task.error.message


@pytest.mark.parametrize("wanted", [False, True])
async def test_errors_count_towards_the_limit_only_if_an_edge_leads_from_them(bench: Bench, wanted: bool) -> None:
    bad = json.dumps("x" * 490)
    some = FanOut("in", least_count=1)
    task = await run(bench, plan(some, errors=wanted), f"[1,2{f',{bad}' * 100}]", failing=(bad,), size=500_000)
    assert (task.error.code if task.error else "") == ("OUTPUT_TOO_LARGE" if wanted else "")
    assert len(json.loads(dict(task.outputs).get("errors", "[]"))) == (0 if wanted else 100)


async def test_failed_fan_out_step_is_retried_when_offered_again(bench: Bench) -> None:
    refusals = 0

    def refused(*_: object) -> bool:
        nonlocal refusals
        refusals += 1
        bench.clock.advance(5_000)
        bench.dispatcher.request_claim()
        return refusals <= 2

    bench.store.refused["fan_out"] = refused
    task = await run(bench, plan(), "[1,2]")
    assert task.outputs == (("out", "[1,2]"),)
    assert refusals == 4


async def test_fan_out_step_with_lost_answer_is_applied_once(bench: Bench) -> None:
    bench.store.lost.add("fan_out")

    async def forget() -> None:
        await until(lambda: any(name == "fan_out" for name, _ in bench.store.calls), "it was split")
        bench.store.lost.clear()
        bench.clock.advance(5_000)
        bench.dispatcher.request_claim()

    forgetting = asyncio.create_task(forget())
    task = await run(bench, plan(), "[1,2]")
    await forgetting
    assert (task.outputs, task.items) == ((("out", "[1,2]"),), ItemCounts(2, 2, begun=2, completed=2))


async def test_fan_out_steps_offered_again_while_waiting_are_applied_once(bench: Bench) -> None:
    names = [f"map{at}" for at in range(40)]
    nodes = (PlanNode("list", "noop"), *(PlanNode(name, "noop", fan_out=OVER) for name in names))
    of = Plan("maps", nodes, tuple(PlanEdge(0, "out", 1 + at, "in") for at in range(40)))
    worker, line = await bench.connect(capacity=1)
    await bench.store.save(of)
    bench.plans.put(of)
    await bench.accepted(of)

    def takes_long(*_: object) -> bool:
        bench.clock.advance(5_000)
        bench.dispatcher.request_claim()
        return False

    bench.store.refused["fan_out"] = takes_long
    given = line.assigned[0].assignment
    done = Outcome(given.task_id, given.attempt, given.nonce, OutcomeKind.COMPLETED, (("out", "[1]"),))
    bench.dispatcher.report(Report(worker, [done]))

    async def split() -> bool:
        found = await bench.store.tasks([f"flow:0:0:{name}" for name in names])
        return all(task is not None and task.items is not None for task in found)

    await until(split, "all lists are split")
    assert bench.store.count("fan_out") <= 10


@pytest.mark.parametrize(("total", "verb"), [(0, "tasks"), (2, "emitted")])
@pytest.mark.parametrize("run_id", ["r0", "another"])
async def test_offer_made_anew_while_it_is_carried_out_is_carried_out_with_it(
    bench: Bench, total: int, verb: str, run_id: str
) -> None:
    """What takes longer than an offer is valid would else never count; unless it is for another run of that name."""
    reading = bench.store.held_up[verb] = asyncio.Event()
    steps: list[FanOutStep] = []

    async def store(given: Sequence[FanOutStep]) -> Sequence[None]:
        steps.extend(given)
        return [None] * len(given)

    bench.plans.put(plan())
    fan_outs = FanOuts(bench.dispatcher.shard, bench.plans, store)
    offer = FanOutOffer("flow:0:0:map", "n1", "r0", "0", plan().digest, 1, total, 0)
    fan_outs.start([offer])
    await until(lambda: bench.store.count(verb) == 1, "the list or the results are being read")
    fan_outs.start([replace(offer, nonce="n2", run_id=run_id)])
    reading.set()
    await until(lambda: bool(steps), "the offer is carried out")
    await fan_outs.stop()
    assert [each.nonce for each in steps] == ["n2" if run_id == "r0" else "n1"]
    assert bench.store.count(verb) == 1


@pytest.mark.parametrize(("total", "index"), [(0, 1), (2, 1), (0, 7)])
async def test_mapped_node_fails_without_its_plan(bench: Bench, total: int, index: int) -> None:
    """Its offer would else be made anew, and fail, for ever; the store ends the run if it has lost the plan as well."""
    steps: list[FanOutStep] = []

    async def store(given: Sequence[FanOutStep]) -> Sequence[None]:
        steps.extend(given)
        return [None] * len(given)

    if index == 7:
        await bench.store.save(plan())
    fan_outs = FanOuts(bench.dispatcher.shard, PlanCache(), store)
    fan_outs.start([FanOutOffer("flow:0:0:map", "n", "r0", "0", plan().digest, index, total, 0)])
    await until(lambda: bool(steps), "the offer is carried out")
    await fan_outs.stop()
    assert [(each.kind, each.error and each.error.code) for each in steps] == [(StepKind.FAILED, "INTERNAL")]


@pytest.mark.parametrize(
    ("value", "fan_out", "code", "message"),
    [
        (None, OVER, "INPUT_MISSING", 'no list arrived at input "in", which the node is mapped over'),
        ('{"a":1}', OVER, "NODE_ERROR", 'input "in", which the node is mapped over, must be a list, is {"a":1}'),
        ("null", OVER, "NODE_ERROR", 'input "in", which the node is mapped over, must be a list, is null'),
        (
            f"[{','.join(['1'] * 10_001)}]",
            OVER,
            "INPUT_TOO_LARGE",
            'the list at input "in" has 10001 items, over 10000: map over parts of it',
        ),
        (
            "[1,2]",
            FanOut("in", least_count=3),
            "ITEMS_FAILED",
            'at least 3 items must complete, but the list at input "in" has only 2',
        ),
    ],
)
def test_invalid_list_is_refused_with_reason(value: str | None, fan_out: FanOut, code: str, message: str) -> None:
    error = split_list(value, fan_out)
    assert isinstance(error, TaskError)
    assert (error.code, error.message) == (code, message)


def test_longest_allowed_list_is_split() -> None:
    items = split_list(f"[{','.join(['1'] * 10_000)}]", OVER)
    assert items == ("1",) * 10_000


@pytest.mark.parametrize(
    ("fan_out", "items", "need"),
    [
        (OVER, 7, 7),
        (FanOut("in", least_count=0), 7, 0),
        (FanOut("in", least_count=9), 7, 9),
        (FanOut("in", least_ratio="0.5"), 7, 4),
        # Exact in spite of binary fractions: 0.1 * 30 is more than 3 in floating point.
        (FanOut("in", least_ratio="0.1"), 30, 3),
        (FanOut("in", least_ratio="0.7"), 10, 7),
        (FanOut("in", least_ratio="1e-05"), 10_000, 1),
        (FanOut("in", least_ratio="1.0"), 7, 7),
    ],
)
def test_number_of_items_that_must_complete(fan_out: FanOut, items: int, need: int) -> None:
    assert fan_out.needed(items) == need


def test_counts_show_open_items_and_unreachable_minimum() -> None:
    counts = ItemCounts(10, 8, begun=6, completed=2, failed=1, cancelled=1)
    assert (counts.ended, counts.open, counts.out_of_reach) == (4, 2, False)
    assert ItemCounts(10, 8, begun=6, completed=2, failed=2, cancelled=1).out_of_reach
