"""Looks through partitions for broken invariants, including invariants between services."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.domain.ended_run import MAX_KEPT
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.doctor import PartitionDoctor, PartitionReport
from tradewind.scheduler.ports.peers import NodeTasks, PeerUnavailable, Triggers
from tradewind.scheduler.ports.stores import Stores
from tradewind.scheduler.ports.sub_flows import SubFlowNodes
from tradewind.scheduler.ports.waking import WakeOwner, Work
from tradewind.scheduler.use_cases.find_readable import find_readable
from tradewind.scheduler.use_cases.load_portion import portions
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.server.clock import Clock
from tradewind.server.doctor import UNREADABLE, Examined, Examiner, Finding
from tradewind.server.faults import Unreadable
from tradewind.server.partitions import PARTITIONS, partition_of

_LATE_MS = 120_000
"""A cycle that has not begun this long after its planned time and jitter will not begin by itself."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExaminePartition:
    """An Examiner of a partition, for its owner when `epoch` is given."""

    partition: int
    epoch: int
    store: PartitionDoctor
    peers: "CheckPeers"

    async def __call__(self, at: str, records: int, recheck: Collection[str] | None, mend: bool) -> Examined:
        report = await self.store.examine(self.partition, self.epoch, at, records, recheck, mend)
        found = await self.peers(report, recheck, mend)
        return replace(report.examined, findings=(*report.examined.findings, *found))


class CheckPeers:
    """Compares records with the trigger service and the node task manager; a service that is away is skipped."""

    def __init__(
        self,
        triggers: Triggers,
        node_tasks: NodeTasks,
        sub_flow_nodes: SubFlowNodes,
        stores: Stores,
        wake: WakeOwner,
        clock: Clock,
    ) -> None:
        self._triggers = triggers
        self._node_tasks = node_tasks
        self._sub_flow_nodes = sub_flow_nodes
        self._stores = stores
        self._wake = wake
        self._clock = clock

    async def __call__(self, report: PartitionReport, recheck: Collection[str] | None, mend: bool) -> list[Finding]:
        """Return findings of what the services do not know; with `recheck`, only those among it, mended if `mend`."""
        found = await self._missing_triggers(report.running)
        async for loaded in portions(self._stores.states, report.submitted):
            open_states = [state for state in loaded.values() if state is not None]
            found += await self._unreadable_runs(loaded)
            try:
                found += await self._unknown_runs(open_states) + await self._undelivered_ends(open_states)
            except PeerUnavailable:
                _log.debug("node_task_manager_unavailable", runs=len(open_states))
        late = [flow_id for flow_id, _, late_ms in report.running if late_ms > _LATE_MS]
        found += await self._silent_triggers(late, {finding.subject for finding in found})
        if recheck is None:
            return found
        known = [finding for finding in found if finding.name in recheck]
        return [await self._mended(finding) for finding in known] if mend else known

    async def _silent_triggers(self, flow_ids: Sequence[str], explained: Collection[str]) -> list[Finding]:
        unexplained = [flow_id for flow_id in flow_ids if flow_id not in explained]
        flows, found = await self._read_flows(unexplained)
        for flow in flows:
            # A flow that runs once may be late while a cycle runs: its only firing is retried until none does.
            if flow.running_cycles:
                continue
            late_ms = self._clock.now_ms() - flow.next_execution_ms - flow.schedule.jitter_ms
            if late_ms > _LATE_MS:
                problem = f"a cycle was planned {late_ms // 1000} s ago, but has not begun"
                found.append(Finding("trigger-silent", flow.flow_id, problem))
        return found

    async def _missing_triggers(self, flows: Sequence[tuple[str, int, int]]) -> list[Finding]:
        if not flows:
            return []
        try:
            epochs = await self._triggers.epochs_of([flow_id for flow_id, _, _ in flows])
        except PeerUnavailable:
            return []
        found: list[Finding] = []
        for flow_id, epoch, _ in flows:
            known = epochs.get(flow_id)
            if known is None:
                problem = "the trigger service has no trigger for it"
            elif known < epoch:
                problem = "its trigger is out of date"
            elif known > epoch and await self._is_behind(flow_id, known):
                problem = "its trigger is of a later version than the record"
            else:
                continue
            found.append(Finding("running-without-trigger", flow_id, f"it is running, but {problem}"))
        return found

    async def _is_behind(self, flow_id: str, epoch: int) -> bool:
        """Say whether a flow's record, read after the epoch of its trigger, still has a lower one.

        A change that is under way does not explain that: the trigger service is told of it later.
        """
        flows, _ = await self._read_flows([flow_id])
        return any(flow.schedule_epoch < epoch for flow in flows)

    async def _unknown_runs(self, states: Sequence[ChainState]) -> list[Finding]:
        if not states:
            return []
        known = {(view.run, view.run_id) for view in await self._node_tasks.components(states)}
        return [
            Finding("run-unknown", str(state.name), "it was submitted, but the node task manager does not know it")
            for state in states
            if (state.name, state.facts.run_id) not in known
        ]

    async def _undelivered_ends(self, states: Sequence[ChainState]) -> list[Finding]:
        """Find nodes that wait for cycles that have ended, where the end is not on its way to them."""
        waiting: dict[RunName, str] = {}
        for state in states:
            if state.facts.runs_flows:
                async for wait in self._sub_flow_nodes.waits(state.name, state.facts.user_id):
                    if wait.child is not None and wait.run_id == state.facts.run_id:
                        waiting[wait.child] = f"{state.name}:{wait.node}"
        found: list[Finding] = []
        ended: list[RunName] = []
        async for children in portions(self._stores.states, list(waiting)):
            ended += [name for name, child in children.items() if child is not None and is_terminal(child.status)]
            found += await self._unreadable_runs(children)
        partitions = sorted({partition_of(name.flow_id) for name in ended})
        in_delivery = {end.run for end in await self._stores.returns.waiting(partitions, MAX_KEPT)} if ended else set()
        return found + [
            Finding(
                "end-not-returned",
                waiting[name],
                f"it waits for cycle {name}, which has ended, but nothing would report that to it",
            )
            for name in ended
            if name not in in_delivery
        ]

    async def _unreadable_runs(self, loaded: Mapping[RunName, ChainState | None]) -> list[Finding]:
        """Find the runs that cannot be read; those that are gone are no concern of this."""
        found: list[Finding] = []
        for run, state in loaded.items():
            if state is None:
                try:
                    await self._stores.states.load(run)
                except Unreadable as error:
                    found.append(Finding(UNREADABLE, f"run {run}", str(error)))
        return found

    async def _read_flows(self, flow_ids: Sequence[str]) -> tuple[list[FlowRecord], list[Finding]]:
        """Return the flows that are there, and a finding for each that cannot be read."""
        flows, unreadable = await find_readable(self._stores.flows, flow_ids)
        found = [Finding(UNREADABLE, f"flow {flow_id}", str(error)) for flow_id, error in unreadable.items()]
        return [flow for flow in flows.values() if flow is not None], found

    async def _mended(self, finding: Finding) -> Finding:
        if finding.check == UNREADABLE:
            return finding
        if finding.check in ("run-unknown", "end-not-returned"):
            # The owner that looks after the run does the rest.
            run = RunName.parse(":".join(finding.subject.split(":")[:3]))
            await self._stores.open_runs.postpone({run: 0})
            self._wake(Work.RUNS, run.flow_id, 0)
        else:
            if finding.check == "trigger-silent":
                # Under the same epoch, saving the trigger again would change nothing.
                await self._stores.flows.raise_schedule_epoch(finding.subject)
            await self._stores.outbox.add(finding.subject)
            self._wake(Work.OUTBOX, finding.subject, 0)
        return replace(finding, mended=True)


class ExaminePartitions:
    """Provides the examiners of all partitions or, for the background, of those that this replica owns."""

    def __init__(self, store: PartitionDoctor, peers: CheckPeers, ownership: OwnPartitions) -> None:
        self._store = store
        self._peers = peers
        self._ownership = ownership

    async def __call__(self, everything: bool) -> Iterable[Examiner]:
        """Return the examiners of all partitions if `everything`, else of the partitions that this replica owns."""
        epochs = dict.fromkeys(range(PARTITIONS), 0) if everything else self._ownership.epochs
        return [
            ExaminePartition(partition, epoch, self._store, self._peers) for partition, epoch in sorted(epochs.items())
        ]
