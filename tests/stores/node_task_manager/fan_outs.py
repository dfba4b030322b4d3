"""What the node task manager does with offers of mapped nodes, done to memory and Redis alike."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.stores.node_task_manager.shards import ShardStores
from tradewind.node_task_manager.domain.fan_out import FanOut, FanOutOffer, FanOutStep, StepKind
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.domain.plan import PlanEdge


@dataclass(frozen=True)
class Offered:
    """An offer as both stores know it: nonces differ, everything else must not."""

    memory: FanOutOffer
    redis: FanOutOffer


def without_nonce(offer: FanOutOffer) -> tuple[object, ...]:
    """Return everything but the nonce."""
    return tuple(getattr(offer, name) for name in FanOutOffer.__slots__ if name != "nonce")


def random_fan_out(rng: random.Random) -> FanOut:
    """Draw how a node runs over a list."""
    return FanOut(
        "list",
        rng.choice((1, 2, 3, 100)),
        least_count=rng.choice((None, None, 0, 2)),
        least_ratio=rng.choice((None, "0.5", "0.75")),
    )


def with_list(edges: Sequence[PlanEdge], target: int, rng: random.Random) -> tuple[PlanEdge, ...]:
    """Let one of the edges into a node carry its list."""
    chosen = rng.choice([edge for edge in edges if edge.target == target])
    changed = PlanEdge(chosen.source, chosen.source_handle, target, "list")
    return tuple(changed if edge is chosen else edge for edge in edges)


def random_split(rng: random.Random, offered: Offered, fan_out: FanOut) -> tuple[FanOutStep, FanOutStep]:
    """Split a list, or find that there is none."""
    count = rng.choice((0, 1, 2, 3, 5, 8))
    items = tuple(rng.choice((str(at), '"' + "v" * 5000 + '"')) for at in range(count))
    need = fan_out.needed(count)
    error = TaskError("INPUT_MISSING", "no list") if rng.random() < 0.1 or need > count > 0 else None
    kind = StepKind.FAILED if error else StepKind.SPLIT if count else StepKind.COMPLETED
    outputs = (("x", "[]"),) if kind is StepKind.COMPLETED else ()

    def step(offer: FanOutOffer) -> FanOutStep:
        split = kind is StepKind.SPLIT
        return FanOutStep(
            offer.task_id, offer.nonce, kind, items if split else (), need if split else 0, outputs, error
        )

    return step(offered.memory), step(offered.redis)


async def join(shard: ShardStores, offer: FanOutOffer) -> FanOutStep:
    """Join what the items emitted as x, in order."""
    emitted = await shard.emitted([f"{offer.task_id}:{at}" for at in range(offer.total)])
    values = [dict(each).get("x", "null") for each in emitted]
    return FanOutStep(offer.task_id, offer.nonce, StepKind.COMPLETED, outputs=(("x", f"[{','.join(values)}]"),))
