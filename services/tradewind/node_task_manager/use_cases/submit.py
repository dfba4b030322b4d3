"""Taking submitted runs."""

import asyncio
from collections.abc import Mapping, Sequence

from tradewind.node_task_manager.domain.component import RunSubmission, SubmitResult
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.plans import PlanCache
from tradewind.node_task_manager.use_cases.shard import by_shard
from tradewind.server.partitions import shard_of


class SubmitRuns:
    """Saves the plans that come with runs, and submits each run to its user's shard."""

    def __init__(self, dispatchers: Mapping[int, Dispatcher], plans: PlanCache) -> None:
        self._dispatchers = dispatchers
        self._plans = plans

    async def __call__(self, runs: Sequence[RunSubmission], plans: Sequence[Plan]) -> list[SubmitResult]:
        """Return an answer for each run, in order. Raises Exhausted when too many are waiting to be stored."""
        places = by_shard((shard_of(run.user_id, len(self._dispatchers)), at) for at, run in enumerate(runs))
        for number in places:
            self._dispatchers[number].require_room()
        if plans:
            by_digest = {plan.digest: plan for plan in plans}
            for number, here in places.items():
                wanted = {digest for at in here for _, digest in runs[at].components}
                for plan in [plan for digest, plan in by_digest.items() if digest in wanted]:
                    await self._dispatchers[number].shard.plans.save(plan)
                    self._plans.put(plan)
        if len(places) == 1:
            (number,) = places
            return await self._dispatchers[number].submit(runs)
        submitted = [self._dispatchers[number].submit([runs[at] for at in here]) for number, here in places.items()]
        answers: dict[int, SubmitResult] = {}
        for here, results in zip(places.values(), await asyncio.gather(*submitted), strict=True):
            answers.update(zip(here, results, strict=True))
        return [answers[at] for at in range(len(runs))]
