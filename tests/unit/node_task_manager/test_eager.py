"""Which nodes a worker may go on with by itself, and how its reports about them are put in order."""

from dataclasses import replace

import pytest

from tests.stores.node_task_manager.shards import plan_of
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.node_task_manager.domain.caching import CacheUse
from tradewind.node_task_manager.domain.concurrency import Concurrency
from tradewind.node_task_manager.domain.eager import MAX_BYTES, MAX_STEPS, eager_steps
from tradewind.node_task_manager.domain.fan_out import FanOut
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.waiting import Wait
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind
from tradewind.node_task_manager.rpc.eager_mapping import step_messages, with_eager
from tradewind.server.faults import InvalidInput
from tradewind.server.rates import KeyRate, Rate

EAGER = frozenset({"noop"})


def steps(plan: Plan, start: int = 0) -> list[str]:
    return [f"{each.after}.{each.handle}>{each.node.node_id}" for each in eager_steps(plan, start, EAGER).steps]


def test_rest_of_chain_follows_from_any_start() -> None:
    plan = plan_of("a>b b>c c>d")
    assert steps(plan) == ["a.out>b", "b.out>c", "c.out>d"]
    assert steps(plan, 2) == ["c.out>d"]
    assert steps(plan, 3) == []


def test_join_is_no_eager_step() -> None:
    assert steps(plan_of("a>b a>c b>d c>d d>e")) == ["a.out>b"]


def test_first_target_of_each_output_handle_follows() -> None:
    assert steps(plan_of("a>b a>c a>d")) == ["a.out>b"]
    assert steps(plan_of("a.buy>b a.sell>c b>d c>e")) == ["a.buy>b", "a.sell>c", "b.out>d", "c.out>e"]


@pytest.mark.parametrize(
    "of_node",
    [
        {"node_type": "other"},
        {"cache": CacheUse("results")},
        {"concurrency": Concurrency("desk", 1)},
        {"rate": KeyRate("desk", Rate(1, 1000), 1)},
        {"fan_out": FanOut("in")},
        {"wait": Wait("go")},
    ],
)
def test_node_with_further_conditions_is_no_eager_step(of_node: dict[str, object]) -> None:
    plan = plan_of("a>b b>c")
    nodes = (plan.nodes[0], replace(plan.nodes[1], **of_node), plan.nodes[2])  # type: ignore[arg-type]
    assert steps(replace(plan, nodes=nodes)) == []


def test_nothing_follows_an_item_of_a_part_of_a_batch() -> None:
    part = Plan("batch", tuple(PlanNode(str(place), "noop") for place in range(500, 600)), (), first=500)
    assert [steps(part, place) for place in (500, 599)] == [[], []]


def test_no_eager_steps_under_max_running_or_after_mapped_node() -> None:
    plan = plan_of("a>b")
    assert steps(replace(plan, max_running=3)) == []
    assert steps(replace(plan, nodes=(replace(plan.nodes[0], fan_out=FanOut("in")), plan.nodes[1]))) == []


def test_eager_steps_are_limited_in_number_and_bytes() -> None:
    chain = plan_of(" ".join(f"n{at}>n{at + 1}" for at in range(100)))
    assert len(steps(chain)) == MAX_STEPS
    large = plan_of("a>b b>c c>d", config_json='"' + "x" * (MAX_BYTES // 2 - 200) + '"')
    assert steps(large) == ["a.out>b", "b.out>c"]


def test_eager_steps_are_computed_once() -> None:
    plan = plan_of("a>b")
    assert eager_steps(plan, 0, EAGER) is eager_steps(plan, 0, frozenset({"noop"}))
    assert eager_steps(plan, 0, frozenset()) is not eager_steps(plan, 0, EAGER)


@pytest.mark.parametrize(
    ("close_ms", "total_ms", "seconds"), [(0, 0, None), (5000, 0, 5), (0, 7000, 7), (5000, 7000, 5)]
)
def test_eager_step_carries_its_time_limit(close_ms: int, total_ms: int, seconds: int | None) -> None:
    plan = plan_of("a>b", start_to_close_ms=close_ms, total_ms=total_ms)
    (message,) = step_messages(eager_steps(plan, 0, EAGER))
    assert (message.timeout.seconds if message.HasField("timeout") else None) == seconds


def token(node_id: str) -> str:
    return f"0~f:0:0:{node_id}~1~{node_id}"


def reported(*pairs: str) -> tuple[list[tuple[int, Outcome]], list[work_pb2.NodeTaskCompletion]]:
    """Return outcomes and completions for `a>b` (a ended, and b was begun with its output) or `a`."""
    parts = [pair.partition(">") for pair in pairs]
    completions = [work_pb2.NodeTaskCompletion(token=token(a), eager_token=token(b) if b else "") for a, _, b in parts]
    outcomes = [(0, Outcome(f"f:0:0:{a}", 1, a, OutcomeKind.COMPLETED)) for a, _, _ in parts]
    return outcomes, completions


def order(outcomes: list[tuple[int, Outcome]]) -> str:
    """Return ids in order: eager ones after `+`, those that are still running in brackets."""
    names = [f"({o.nonce})" if o.kind is OutcomeKind.BEGUN else o.nonce for _, o in outcomes]
    return "".join(f"+{name}" if o.eager else f" {name}" for name, (_, o) in zip(names, outcomes, strict=True)).strip()


def test_eager_outcome_follows_the_outcome_it_began_with() -> None:
    assert order(with_eager("w", *reported("a", "b"))) == "a b"
    assert order(with_eager("w", *reported("a>b"))) == "a+(b)"
    assert order(with_eager("w", *reported("a>b", "b>c", "x", "c"))) == "a+b+c x"
    assert order(with_eager("w", *reported("c>d", "x>y", "b>c", "a>b"))) == "x+(y) a+b+c+(d)"


def test_failed_eager_outcome_follows_the_outcome_it_began_with() -> None:
    outcomes, completions = reported("a>b")
    failed = Outcome("f:0:0:b", 1, "b", OutcomeKind.FAILED)
    assert order(with_eager("w", [*outcomes, (0, failed)], completions)) == "a+b"


@pytest.mark.parametrize(
    ("pairs", "ring"), [(["a>a"], [0]), (["a>b", "b>a"], [0, 1]), (["x", "c>a", "y>z", "a>b", "b>c"], [1, 3, 4])]
)
def test_ring_of_eager_tokens_is_refused(pairs: list[str], ring: list[int]) -> None:
    with pytest.raises(InvalidInput) as error:
        with_eager("w", *reported(*pairs))
    assert [each.path for each in error.value.violations] == [f"completions[{at}].eager_token" for at in ring]
