"""Taking submitted runs."""

import asyncio
from collections.abc import Mapping, Sequence

from tradewind.node_task_manager.domain.component import RunSubmission, SubmitResult
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.plans import PlanCache
from tradewind.server.partitions import shard_of


class SubmitRuns:
    """Saves the plans that come with runs, and submits each run to its user's shard."""

    def __init__(self, dispatchers: Mapping[int, Dispatcher], plans: PlanCache) -> None:
        self._dispatchers = dispatchers
        self._plans = plans

    async def __call__(self, runs: Sequence[RunSubmission], plans: Sequence[Plan]) -> list[SubmitResult]:
        """Return an answer for each run, in order. Raises Exhausted when too many are waiting to be stored."""
        shards = [shard_of(run.user_id, len(self._dispatchers)) for run in runs]
        for number in set(shards):
            self._dispatchers[number].require_room()
        if plans:
            by_digest = {plan.digest: plan for plan in plans}
            for number in set(shards):
                wanted = {
                    digest for run, at in zip(runs, shards, strict=True) if at == number for _, digest in run.components
                }
                for plan in [plan for digest, plan in by_digest.items() if digest in wanted]:
                    await self._dispatchers[number].shard.plans.save(plan)
                    self._plans.put(plan)
        submitted = [self._dispatchers[at].submit(run) for run, at in zip(runs, shards, strict=True)]
        if len(submitted) == 1:
            return [await submitted[0]]
        return list(await asyncio.gather(*submitted))
