"""Random reruns of runs that have ended, keeping some of their good results."""

import random
from collections.abc import Mapping

from msgspec import structs

from tests.stores.node_task_manager.shards import ShardStores
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.plan import Plan


async def random_rerun(
    rng: random.Random, shard: ShardStores, runs: Mapping[str, RunSubmission], plans: Mapping[str, Plan], now: int
) -> RunSubmission | None:
    """Draw a rerun of a run that has ended and is the latest of its cycle; return None when there is none."""
    ended = []
    for run in runs.values():
        components = await shard.components([(run.run, component_id) for component_id, _ in run.components])
        latest = str(structs.replace(run.run, run=run.run.run + 1)) not in runs
        if not run.run.ad_hoc and latest and all(each is not None and each.finished_at for each in components):
            ended.append(run)
    drawn = [(run, await _kept(rng, shard, run, plans)) for run in ended]
    # Mostly runs with something to keep.
    worthwhile = [each for each in drawn if each[1]] if rng.random() < 0.8 else drawn
    if not worthwhile:
        return None
    before, kept = rng.choice(worthwhile)
    name = structs.replace(before.run, run=before.run.run + 1)
    return structs.replace(
        before,
        run=name,
        run_id=f"{before.run_id}+",
        begun_ms=now,
        source=before.run.run,
        source_id=before.run_id if rng.random() < 0.95 else "other",
        kept=kept,
    )


async def _kept(
    rng: random.Random, shard: ShardStores, run: RunSubmission, plans: Mapping[str, Plan]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    kept = []
    for component_id, digest in run.components:
        if component_id in run.withheld:
            continue
        plan = plans[digest]
        tasks = await shard.tasks([run.run.task_id(node.node_id) for node in plan.nodes])
        if places := _some_kept(rng, plan, tasks):
            kept.append((component_id, places))
    return tuple(kept)


def _some_kept(rng: random.Random, plan: Plan, tasks: list[NodeTask | None]) -> tuple[int, ...]:
    """Keep most completed nodes, each only together with all nodes before it."""
    kept: list[int] = []
    for place, task in enumerate(tasks):
        before = {plan.edges[at].source for at in plan.inputs[place]}
        completed = task is not None and task.status is NodeTaskStatus.COMPLETED
        if completed and rng.random() < 0.8 and before <= set(kept):
            kept.append(place)
    return tuple(kept)
