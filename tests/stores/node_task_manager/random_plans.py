"""The plans that the random actor submits: random graphs, and those of tasks and batches."""

import random
from dataclasses import replace

from tests.stores.node_task_manager.fan_outs import random_fan_out, with_list
from tests.stores.node_task_manager.waits import SURE, random_built_in
from tradewind.node_task_manager.domain.concurrency import Concurrency, WhenFull
from tradewind.node_task_manager.domain.plan import FailurePolicy, Plan, PlanEdge, PlanNode, RunIf
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.server.rates import KeyRate, Rate

TYPES = ("t1", "t2")
ALONE = Plan("alone", (PlanNode("", "t1", start_to_close_ms=5_000),), ())
ALONE_AGAIN = Plan("again", (PlanNode("", "t1", heartbeat_ms=40_000, retry=RetryPolicy(3, initial_ms=700)),), ())
TASK_PLANS = {plan.digest: plan for plan in (ALONE, ALONE_AGAIN)}
BATCH = Plan("batch", tuple(PlanNode(str(at), "t1", start_to_close_ms=5_000) for at in range(4)), ())


def random_plan(rng: random.Random, number: int, *, lasting: bool) -> Plan:
    """Draw a graph of up to 7 nodes whose edges go forward; no other plan has nodes of these names."""
    if rng.random() < 0.3:
        return _random_tree(rng, number)
    count = rng.randint(1, 7)
    nodes = tuple(
        PlanNode(
            f"n{number}-{at}",
            rng.choice(TYPES),
            run_if=rng.choices(list(RunIf), (5, 2, 1))[0],
            schedule_to_start_ms=rng.choice((0, 1_000, 60_000)),
            start_to_close_ms=rng.choice((0, 5_000, 300_000)),
            retry=_random_policy(rng) if rng.random() < 0.6 else None,
            heartbeat_ms=rng.choice((0, 0, 3_000, 40_000)),
            total_ms=rng.choice((0, 0, 0, 10_000, 120_000)),
            priority=rng.choice((0, 0, -1, 2)),
            concurrency=Concurrency(rng.choice("kl"), rng.randint(1, 2), rng.choice(list(WhenFull)))
            if rng.random() < 0.3
            else None,
            rate=_random_rate(rng) if rng.random() < 0.3 else None,
            wait=random_built_in(rng) if rng.random() < 0.15 else None,
        )
        for at in range(count)
    )
    edges = tuple(
        PlanEdge(source, rng.choice("xy"), target, "in")
        for source in range(count)
        for target in range(source + 1, count)
        if rng.random() < 0.4
    )
    for target in sorted({edge.target for edge in edges}):
        if rng.random() < 0.4:
            edges = with_list(edges, target, rng)
            mapped = replace(nodes[target], fan_out=random_fan_out(rng))
            nodes = (*nodes[:target], mapped, *nodes[target + 1 :])
    policy = rng.choices(list(FailurePolicy), (4, 2, 2))[0]
    if lasting:
        nodes = tuple(_lasting(node) if node.fan_out or policy is FailurePolicy.FAIL_FAST else node for node in nodes)
    return Plan(f"plan{number}", nodes, edges, policy, max_running=rng.choice((0, 0, 1, 3)))


def _random_tree(rng: random.Random, number: int) -> Plan:
    """Draw nodes that each take the output of an earlier one, under no limits: workers go on with them themselves."""
    nodes = tuple(
        PlanNode(
            f"n{number}-{at}",
            rng.choice(TYPES),
            start_to_close_ms=rng.choice((0, 5_000, 300_000)),
            retry=_random_policy(rng) if rng.random() < 0.3 else None,
            heartbeat_ms=rng.choice((0, 0, 40_000)),
            total_ms=rng.choice((0, 0, 0, 120_000)),
        )
        for at in range(rng.randint(2, 7))
    )
    edges = tuple(
        PlanEdge(target - rng.choice((1, 1, min(target, 2))), rng.choice("xxy"), target, "in")
        for target in range(1, len(nodes))
    )
    return Plan(f"plan{number}", nodes, edges)


def _lasting(node: PlanNode) -> PlanNode:
    """Return a node that does not fail while waiting and, if mapped, has no items that all end by themselves at once.

    Such ends may stop other nodes, and cut scripts have already gone on with some of those.
    """
    wait = None if node.wait is None or node.fan_out else replace(node.wait, late_error="")
    if wait is not None and wait.flow_id:
        wait = replace(wait, flow_id=SURE)
    return replace(node, total_ms=0, wait=wait)


def _random_rate(rng: random.Random) -> KeyRate:
    rate = Rate(rng.randint(1, 4), rng.choice((1_000, 60_000)))
    return KeyRate(rng.choice("kl"), rate, rng.randint(1, rate.count))


def _random_policy(rng: random.Random) -> RetryPolicy:
    return RetryPolicy(
        attempts=rng.choice((1, 2, 2, 3)),
        initial_ms=rng.choice((0, 1, 700, 20_000)),
        factor=rng.choice((1.0, 1.5, 3.0)),
        max_ms=rng.choice((20_000, 60_000)),
        jitter=rng.choice((0.0, 0.3, 1.0)),
        non_retryable=rng.choice(((), ("ValueError",), ("Unheard", "TIMEOUT"))),
    )
