"""Explains why a node of a cycle has the status that it has."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTask, NodeTaskStatus
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.ports.explaining import NodeTaskReasons, WorkerRecords
from tradewind.scheduler.use_cases.cycle_reasons import ended_reason, is_known, open_cycle_reasons
from tradewind.scheduler.use_cases.definitions import Definitions
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.server.faults import NotFound
from tradewind.server.nearest_name import NearestName
from tradewind.server.reasons import Reason, no_live_worker, ordered, store_takes_no_writes, workers_busy

_ENDED = (
    NodeTaskStatus.NODE_TASK_STATUS_COMPLETED,
    NodeTaskStatus.NODE_TASK_STATUS_FAILED,
    NodeTaskStatus.NODE_TASK_STATUS_TERMINATED,
    NodeTaskStatus.NODE_TASK_STATUS_SKIPPED,
)


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """A node of a cycle; `node_task` is None if the node task manager does not know it yet, or no longer."""

    state: ChainState
    node_task: NodeTask | None
    reasons: list[Reason]


class ExplainNode:
    """Adds to the node task manager's reasons those of the node's cycle and of the workers that offer its type.

    `refusal()` returns why the scheduler's store takes no writes, "" when it takes them.
    """

    def __init__(
        self,
        read: ReadFlows,
        definitions: Definitions,
        node_tasks: NodeTaskReasons,
        workers: WorkerRecords,
        refusal: Callable[[], Awaitable[str]],
    ) -> None:
        self._read = read
        self._definitions = definitions
        self._node_tasks = node_tasks
        self._workers = workers
        self._refusal = refusal

    async def __call__(self, flow_id: str, cycle: int | None, run: int | None, node_id: str) -> NodeExplanation:
        """Return a node and the reasons, the most decisive first. Raises NotFound, PeerUnavailable.

        `node_id` may also be `<node>:<item>`, an item of a node that runs over a list.
        """
        state = await self._read.cycle(flow_id, cycle, run)
        task_id = f"{state.name}:{node_id}"
        node, is_item, _ = node_id.partition(":")
        planned = await self._definitions.of_run(state)
        if planned is not None and node not in planned.shape.node_ids:
            raise NotFound("node task", task_id, hint=NearestName(planned.shape.node_ids).hint(node))
        found = await self._node_tasks.explain(task_id, state.facts.user_id)
        if found is None and is_item:
            await self._refuse_unknown_item(state, node, task_id)
        node_task, node_reasons = found or (None, [])
        if is_terminal(state.status):
            reasons = [await ended_reason(self._node_tasks, state, "run_ended")]
        else:
            reasons = await self._open_reasons(state, node_task, node_reasons)
        if node_task is not None and any(reason.code == "queued" for reason in node_reasons):
            no_worker = next((reason for reason in node_reasons if reason.code == "no_live_worker"), None)
            node_reasons = [each for each in node_reasons if each.code not in ("no_live_worker", "workers_busy")]
            of_workers = await self._no_worker_reason(node_task.node_type, no_worker)
            held_back = any(each.code in ("limit_full", "rate_limited") for each in node_reasons)
            # What a limit holds back does not wait for workers that have room.
            if not (held_back and of_workers.facts.get("free_slots")):
                reasons.append(of_workers)
        # The end of the node itself comes before the end of its cycle.
        ended = node_task is not None and node_task.status in _ENDED
        return NodeExplanation(
            state, node_task, [*node_reasons, *reasons] if ended else ordered([*reasons, *node_reasons])
        )

    async def _open_reasons(
        self, state: ChainState, node_task: NodeTask | None, node_reasons: Sequence[Reason]
    ) -> list[Reason]:
        """Return what keeps a node of an open cycle, other than what the node task manager says about the node."""
        known = node_task is not None or await is_known(self._node_tasks, state)
        reasons = open_cycle_reasons(state, known=known)
        if all(each.code != "store_takes_no_writes" for each in node_reasons):
            # Both services mostly use the same store: then this reason is there already.
            reasons += store_takes_no_writes(await self._refusal())
        if known and node_task is None:
            text = "its component is withheld until other components have ended"
            reasons.append(Reason("withheld", text, {"cycle": state.name.cycle}))
        return reasons

    async def _refuse_unknown_item(self, state: ChainState, node_id: str, task_id: str) -> None:
        """Raise NotFound for an unknown item of a known node."""
        found = await self._node_tasks.explain(f"{state.name}:{node_id}", state.facts.user_id)
        if found is not None:
            total = found[0].items.total if found[0].HasField("items") else None
            text = f"has {total} items, counted from 0" if total else "got an empty list"
            if total is None:
                text = "does not run over a list"
            raise NotFound("node task", task_id, hint=f'; node "{node_id}" {text}')

    async def _no_worker_reason(self, node_type: str, no_worker: Reason | None) -> Reason:
        """Return why no worker takes the node.

        The node task manager knows which workers are connected, the registry which are on record. `no_worker` is the
        reason that no connected worker offers the type, None if one does.
        """
        workers = await self._workers.workers(node_type)
        if workers is None:
            return no_worker or workers_busy(node_type)
        offline = {each.worker_id: each.last_heartbeat_ms for each in workers if not each.alive}
        if no_worker is not None:
            last = {name: str(no_worker.facts.get(name, "")) for name in ("last_worker", "until")}
            return no_live_worker(node_type, (), offline, **last)
        accepting = [each for each in workers if each.alive and not each.draining]
        if not accepting:
            draining = [each.worker_id for each in workers if each.alive]
            return no_live_worker(node_type, draining, offline) if draining else workers_busy(node_type)
        connected = await self._node_tasks.connected([each.worker_id for each in accepting])
        absent = [] if connected is None else [each.worker_id for each in accepting if each.worker_id not in connected]
        accepting = [each for each in accepting if each.worker_id not in absent]
        slots = sum(each.capacity for each in accepting)
        free = sum(max(0, each.capacity - each.running) for each in accepting)
        return workers_busy(node_type, len(accepting), slots, free, absent)
