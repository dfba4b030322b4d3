"""What must be true when a life is over: nothing begins any more, nothing is disturbed, and there was time to end.

1. Every cycle has ended, and its flow keeps nothing open and nothing waiting. Backfills and bulk jobs have ended, too,
   and backfills count each of their times once.
2. No planned time of a schedule has two cycles, and no event.
3. Nothing that one service owes another is left: submissions, ends of cycles, ends of components, firings.
4. Every component and node task has ended; nothing is queued, leased or delayed, and no limit is taken up.
5. No replica holds anything in its memory for what has ended.
6. A cycle counts its nodes as they ended.
7. No attempt ran twice (`Nodes.repeated`), unless its run was lost and has begun again under another number.
8. No node has raised a variable twice with `once` (`Life`); no request was carried out twice, unless stores lose writes
   (`Users`).
9. No user was answered that a server has a fault. Without faults of others, none was away, or let a user wait in vain
   (`Life` notes these).
10. Before flows are paused, and once doctors have had time to mend what was lost, no doctor finds anything (`Life`):
   every running flow has its trigger, and fires in time; every submitted run is known where it runs.
11. A node has run if its sources emitted what its `run_if` wants, and was skipped if they did not.
12. No shard has the value of a secret on record (`told_secrets`), although nodes log it, fail with it, and return it.

6, 7 and 11 do not hold where the store of the node task managers loses writes: what it has forgotten runs again, maybe
with another outcome.
"""

import json
from collections import Counter
from collections.abc import Iterator

from tests.system.lives.world import World
from tradewind.node_task_manager.app import NodeTaskManager
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.node_task_manager.domain.plan import FailurePolicy
from tradewind.node_task_manager.stores.memory.records import run_of, task_name
from tradewind.node_task_manager.stores.memory.shard import MemoryShard
from tradewind.node_task_manager.use_cases.called_connection import CalledConnection
from tradewind.node_task_manager.use_cases.shard import of_user
from tradewind.scheduler.domain.backfill import BackfillStatus
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.stores.memory.data import Data, Flow, Run
from tradewind.trigger.domain.trigger import TriggerStatus
from tradewind.trigger.stores.memory import MemoryTriggerStore


def violations(world: World, *, counts: bool) -> list[str]:
    """Return a sentence for everything that is not as it must be. `counts` says whether to compare counts of nodes."""
    data, shards = world.stores.data, world.stores.shards
    found: list[str] = []
    for flow in data.flows.values():
        found += _of_flow(flow)
        found += _of_planned_times(flow)
        found += _of_events(flow)
        found += _of_backfills(flow)
        for run in flow.runs.values() if counts else ():
            found += _of_counts(run, of_user(dict(enumerate(shards)), run.state.facts.user_id))
    found += [f"bulk job {id} has not ended" for id, (job, _) in data.jobs.items() if not job.ended_ms]
    found += _of_debts(data)
    found += _of_triggers(world.stores.triggers)
    for shard in shards:
        found += _of_node_tasks(shard)
        found += _of_conditions(shard) if counts else ()
    for replica in world.node_task_managers.all:
        assert isinstance(replica.service, NodeTaskManager)
        found += _of_memory(replica.service)
    return found


def is_quiet(world: World) -> bool:
    """Whether all cycles have ended, no node runs and no trigger is due any more."""
    leases = [lease for shard in world.stores.shards for lease in shard._leases]
    return not (world.stores.data.open or leases or _waiting(world.stores.triggers))


def ended_runs(world: World) -> list[str]:
    """Return the ids of the runs on record that have ended."""
    runs = [run for flow in world.stores.data.flows.values() for run in flow.runs.values()]
    return [run.state.facts.run_id for run in runs if is_terminal(run.state.status)]


def told_secrets(world: World, secret: str) -> list[str]:
    """Return a sentence for each shard whose records have the value of a secret."""
    shards = enumerate(world.stores.shards)
    return [f"shard {at} has the value of a secret on record" for at, shard in shards if secret in repr(vars(shard))]


def _of_flow(flow: Flow) -> Iterator[str]:
    for name, run in flow.runs.items():
        if not run.state.status or not is_terminal(run.state.status):
            yield f"cycle {name} is {run.state.status}"
    yield from _left(f"flow {flow.flow_id}", open=flow.open, queued=flow.queued, filling=flow.filling)


def _of_planned_times(flow: Flow) -> Iterator[str]:
    facts = [run.state.facts for name, run in flow.runs.items() if not name.run]
    planned = Counter(each.planned_ms for each in facts if each.origin in ("schedule", "backfill"))
    for planned_ms, cycles in planned.items():
        if planned_ms and cycles > 1:
            yield f"flow {flow.flow_id} has {cycles} cycles that were planned for {planned_ms}"


def _of_events(flow: Flow) -> Iterator[str]:
    facts = [run.state.facts for name, run in flow.runs.items() if not name.run]
    # A node that runs a flow passes the inputs of its own cycle on.
    inputs = [json.loads(each.inputs_json or "{}") for each in facts if each.origin == "schedule"]
    for event_id, cycles in Counter(each["event"]["id"] for each in inputs if "event" in each).items():
        if cycles > 1:
            yield f"flow {flow.flow_id} has {cycles} cycles for event {event_id}"


def _of_backfills(flow: Flow) -> Iterator[str]:
    for id, record in flow.backfills.items():
        backfill = record.backfill
        if not backfill.ended_ms or backfill.begun != backfill.completed + backfill.failed:
            yield f"backfill {id} of {flow.flow_id} has not ended: {backfill}"
        if backfill.status is BackfillStatus.COMPLETED and backfill.left:
            yield f"backfill {id} of {flow.flow_id} leaves times out: {backfill}"


def _of_triggers(triggers: MemoryTriggerStore) -> Iterator[str]:
    yield from _left("the trigger service", triggers=_waiting(triggers))


def _waiting(triggers: MemoryTriggerStore) -> list[str]:
    entries = [entry.trigger for lane in triggers.lanes.values() for entry in lane.entries.values()]
    return [each.id for each in entries if each.status in (TriggerStatus.SCHEDULED, TriggerStatus.CLAIMED)]


def _of_counts(run: Run, shard: MemoryShard) -> Iterator[str]:
    state, name = run.state, str(run.state.name)
    submitted = shard._runs.get(name)
    if submitted is None or submitted.submission.run_id != state.facts.run_id:
        return
    if len(state.components) < state.facts.component_count:
        return
    tasks = [task for id, task in shard._tasks.items() if run_of(id) == name and not task_name(id).mapped]
    ended = Counter(task.status.value for task in tasks)
    for status in ("completed", "failed", "terminated"):
        counted = sum(getattr(component, status) for component in state.components.values())
        if tasks and counted != ended[status]:
            yield f"cycle {name} counts {counted} {status} nodes, and {ended[status]} are on record"


def _of_debts(data: Data) -> Iterator[str]:
    yield from _left(
        "the schedulers", open=data.open, outbox=data.outbox, returns=[at for at, ends in data.returns.items() if ends]
    )


def _of_node_tasks(shard: MemoryShard) -> Iterator[str]:
    for (run, component_id), component in shard._components.items():
        if component.status.value != "finished":
            yield f"component {component_id} of {run} is {component.status.value}"
    for task in shard._tasks.values():
        if not task.status.terminal:
            yield f"node task {task.task_id} is {task.status.value}"
    queues, slots = shard._queues, shard._slots
    yield from _left(
        "the node task managers",
        events=[event for events in shard._events.values() for event in events],
        leases=shard._leases,
        delayed=shard._delayed,
        offers=shard._offers,
        queued=list(queues.heads()),
        parked=queues._parked,
        slots=[limit for limit, held in slots._held.items() if held],
        blocked=[limit for limit, waiting in slots._blocked.items() if waiting],
    )


def _of_conditions(shard: MemoryShard) -> Iterator[str]:
    """Compare what became of nodes with what their sources emitted, unless a stop decided it."""
    for (run, component_id), component in shard._components.items():
        plan = shard._plans.get(component.plan)
        if plan is None or component.stop is not None:
            continue
        tasks = [shard._tasks.get(component.run.task_id(node.node_id)) for node in plan.nodes]
        continues = shard._runs[run].policy[component_id] is FailurePolicy.CONTINUE
        for task, node, into in zip(tasks, plan.nodes, plan.inputs, strict=True):
            if task is None or task.kept or not into:
                continue
            sources = [(tasks[edge.source], edge.source_handle) for edge in (plan.edges[at] for at in into)]
            live = sum(
                handle in dict(source.outputs) or (continues and source.status is NodeTaskStatus.FAILED)
                for source, handle in sources
                if source is not None
            )
            skipped = task.status is NodeTaskStatus.SKIPPED
            # Whoever stops a node gives another reason.
            if skipped and task.reason.startswith('node "') if node.run_if.wants(len(into), live) else not skipped:
                found = f"{task.status.value} ({task.reason})"
                yield f"node task {task.task_id} is {found} with {live} of {len(into)} inputs"


def _of_memory(service: NodeTaskManager) -> Iterator[str]:
    for dispatcher in service._dispatchers.values():
        called = [worker for worker in dispatcher._pool if isinstance(worker, CalledConnection)]
        yield from _left(
            "a node task manager's memory",
            held=[f"{worker.worker_id}: {worker.held}" for worker in dispatcher._pool if worker.held],
            unnamed=[f"{worker.worker_id}: {worker.unnamed}" for worker in dispatcher._pool if worker.unnamed],
            handed_over=[
                f"{each.worker_id}: {each.incoming}, {each.tried}" for each in called if each.incoming or each.tried
            ],
            unsent=dispatcher._delivery._unsent,
            fan_outs=[dispatcher._fan_outs._latest, dispatcher._fan_outs._running],
            reports=dispatcher._reports,
        )
    yield from _left("a node task manager's memory", flights=len(service._caches.flights))


def _left(where: str, **kinds: object) -> Iterator[str]:
    for kind, left in kinds.items():
        if any(left) if isinstance(left, list) else left:
            yield f"{where}: {kind} are left: {left}"
