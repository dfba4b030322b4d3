"""How much work there is for a pool of workers."""

import asyncio
from collections import Counter
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

from tradewind.node_task_manager.ports.reading import Queue
from tradewind.node_task_manager.rpc.queue_mapping import queue_stats
from tradewind.node_task_manager.use_cases.demand import Demand, Pool
from tradewind.node_task_manager.use_cases.queue_statistics import CountQueues, QueueDepth, QueueStatistics


def statistics(*queues: QueueDepth) -> QueueStatistics:
    return QueueStatistics(queues, 0, 0, 0, {}, {})


SOME = statistics(
    QueueDepth("fetch", "ann", 3, 2, 1), QueueDepth("fetch", "bob", 1, 0, 1), QueueDepth("fit", "ann", 0, 4, 0)
)


class ManyQueues:
    """A shard's queues: one of type `z` behind those of 12 000 users."""

    async def queues(self) -> list[Queue]:
        return [*(Queue("a", f"user{at:05}", 1, 1000) for at in range(12_000)), Queue("z", "zoe", 3, 1000)]

    async def running(self, limit: int) -> tuple[int, Counter[tuple[str, str]]]:
        return 2, Counter({("z", "zoe"): 2})

    async def totals(self) -> dict[str, int]:
        return {}

    async def cleaned(self) -> dict[str, int]:
        return dict.fromkeys(("runs", "node_tasks", "entries"), 0)


async def test_every_queue_counts_as_demand_though_an_answer_lists_only_some() -> None:
    shard: Any = SimpleNamespace(queues=ManyQueues())
    count = CountQueues({0: shard})
    assert await Demand(count).of(Pool(("z",))) == 5
    answer = queue_stats(await count())
    assert (len(answer.queues), answer.queued, answer.running) == (10_000, 12_003, 2)


class Reads:
    """Gives these answers one after another, the last one for ever."""

    def __init__(self, *answers: QueueStatistics) -> None:
        self.answers = list(answers)
        self.count = 0

    async def __call__(self) -> QueueStatistics:
        self.count += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def test_demand_filters_by_node_type_user_and_running() -> None:
    demand = Demand(Reads(SOME))

    assert await demand.of(Pool()) == 10
    assert await demand.of(Pool(count_running=False)) == 4
    assert await demand.of(Pool({"fetch"})) == 6
    assert await demand.of(Pool({"fetch", "fit"}, "ann")) == 9
    assert await demand.of(Pool({"other"})) == 0


async def test_concurrent_requests_share_one_read() -> None:
    reads = Reads(SOME)
    demand = Demand(reads, fresh_s=3600)

    assert await asyncio.gather(*(demand.of(Pool()) for _ in range(50))) == [10] * 50
    assert reads.count == 1


async def test_only_changes_are_pushed() -> None:
    reads = Reads(statistics(), SOME, SOME, SOME, statistics(), statistics())
    pushed = []
    async with aclosing(Demand(reads, poll_s=0, fresh_s=0).follow(Pool())) as changes:
        async for active in changes:
            pushed.append(active)
            if len(pushed) == 3:
                break

    assert pushed == [False, True, False]
    assert reads.count == 5
