"""Runs that end, and their cleaning."""

from tests.stores.node_task_manager.shards import LIMITS, Bench, completed
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.ports.node_tasks import Cleaned

PARTITION = 3
SETTLE = LIMITS.settle_ms


async def run_cycle(bench: Bench, cycle: int, plan: Plan, *, keep: int = 0, keep_for: int = 0) -> RunSubmission:
    """Submit a run of one or more components of the same plan and complete all its node tasks."""
    run = RunSubmission(
        RunName("flow", cycle, 0),
        f"r{cycle}",
        "default",
        (("0", plan.digest),),
        PARTITION,
        begun_ms=bench.clock(),
        keep_cycles=keep,
        keep_for_ms=keep_for,
    )
    await bench.shard.save(plan)
    assert (await bench.shard.submit([run])).results[0].outcome == "accepted"
    while taken := await bench.take():
        for each in taken:
            assert await bench.complete(each, out="1") == ""
    return run


async def run_cycles(bench: Bench, cycles: range, plan: Plan, keep: int = 0) -> None:
    """Submit runs of many cycles at once and complete all their node tasks."""
    await bench.shard.save(plan)
    names = [RunName("flow", cycle, 0) for cycle in cycles]
    parts = (("0", plan.digest),)
    runs = [RunSubmission(name, f"r{name.cycle}", "default", parts, PARTITION, keep_cycles=keep) for name in names]
    await bench.shard.submit(runs)
    while taken := await bench.take(500):
        await bench.shard.complete([completed(each) for each in taken])


async def acknowledge(bench: Bench) -> None:
    """Acknowledge all events, as a scheduler does once it has folded them."""
    if events := await bench.shard.read({PARTITION: "0"}, 10_000):
        await bench.shard.acknowledge({PARTITION: events[-1].event_id})


async def clean(bench: Bench, cleaner: str = "c") -> list[Cleaned]:
    """Clean until there is nothing left to do."""
    steps = [await bench.shard.clean(cleaner, 0)]
    while steps[-1].more:
        steps.append(await bench.shard.clean(cleaner, steps[-1].place))
    return steps


async def kept(bench: Bench, cycles: range) -> list[int]:
    """Return which of these cycles are on record."""
    return [at for at in cycles if await bench.shard.component_ids(RunName("flow", at, 0))]


async def settle(bench: Bench) -> list[Cleaned]:
    """Acknowledge all events, and clean once the runs that have ended may be cleaned."""
    await acknowledge(bench)
    bench.clock.advance(SETTLE)
    return await clean(bench)
