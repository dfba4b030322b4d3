"""Removing ended runs that are no longer kept, and asking about open ones, in memory: all at once."""

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import structs

from tradewind.node_task_manager.domain.component import Component, ComponentStatus
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.ports.events import OpenEvent
from tradewind.node_task_manager.ports.node_tasks import Cleaned
from tradewind.node_task_manager.stores.memory.claiming import MemoryClaiming


class MemoryCleaning(MemoryClaiming):
    """Keeps as many ended runs of each flow as the flow asks for."""

    def __init__(self, limits: Limits, clock: Callable[[], int]) -> None:
        super().__init__(limits, clock)
        self._kept: dict[str, set[RunName]] = {}
        self._cleaned: Counter[str] = Counter(runs=0, node_tasks=0, entries=0)
        self._cleaner = ("", 0)

    async def clean(self, cleaner: str, place: int | None, recall: int | None = None) -> Cleaned:
        now = self._clock()
        holder, until = self._cleaner
        if holder != cleaner and now < until:
            return Cleaned(leads=False)
        self._cleaner = (cleaner, now + self._limits.cleaner_lease_ms)
        if any(at <= now for at in self._leases.values()):
            return Cleaned(leads=True, waits=True)
        before = self._cleaned.copy()
        if recall is not None:
            soon = now + self._limits.settle_ms
            self._to_clean |= {name: now for name, at in self._to_clean.items() if at > soon}
        for _, name in sorted((at, name) for name, at in self._to_clean.items() if at <= now):
            if name not in self._to_clean:
                # It has been removed with a later run of its cycle.
                continue
            if open_components := self._open_components(name):
                self._confirm(name, open_components, now)
            else:
                self._settle_run(name, now)
        self._unlisted_ms = now - self._limits.retention_ms
        removed = self._cleaned - before
        events = tuple(self.new_events())
        return Cleaned(leads=True, runs=removed["runs"], node_tasks=removed["node_tasks"], events=events)

    async def leave_cleaning(self, cleaner: str) -> None:
        if self._cleaner[0] == cleaner:
            self._cleaner = ("", 0)

    async def cleaned(self) -> dict[str, int]:
        return dict(self._cleaned)

    def _open_components(self, name: str) -> list[Component]:
        of_run = [self._components[name, at] for at, _ in self._runs[name].submission.components]
        return [component for component in of_run if component.status is not ComponentStatus.FINISHED]

    def _confirm(self, name: str, open_components: Sequence[Component], now: int) -> None:
        """Ask the scheduler about a run that is open, unless no scheduler has taken events for as long as that."""
        self._to_clean[name] = now + self._limits.confirm_ms
        partition = self._runs[name].submission.partition
        if any(event.at <= now - self._limits.confirm_ms for event in self._events.get(partition, ())[:1]):
            return
        for component in open_components:
            self.append(
                OpenEvent(
                    event_id=f"{now}-{next(self._numbers)}",
                    partition=partition,
                    at=now,
                    run=name,
                    run_id=component.run_id,
                    component=component.component_id,
                    user_id=component.user_id,
                    begun_at=component.submitted_at,
                )
            )

    def _settle_run(self, name: str, now: int) -> None:
        """Count a run that ended a while ago among its flow's ended runs, unless the scheduler may still ask for it."""
        submission = self._runs[name].submission
        ended_at = max(self._components[name, at].finished_at for at, _ in submission.components)
        if any(event.at <= ended_at for event in self._events.get(submission.partition, ())):
            self._to_clean[name] = now + self._limits.settle_ms
            return
        del self._to_clean[name]
        if str(structs.replace(submission.run, run=submission.run.run + 1)) in self._runs:
            return
        if submission.keep_for_ms and ended_at + submission.keep_for_ms <= now:
            self._drop_cycle(submission.run)
        else:
            self._kept.setdefault(submission.run.flow_id, set()).add(submission.run)
        of_flow = sorted(self._kept.get(submission.run.flow_id, ()), key=lambda run: (run.cycle, run.run))
        for run in of_flow[: -(submission.keep_cycles or self._limits.keep_cycles)]:
            self._kept[run.flow_id].discard(run)
            self._drop_cycle(run)

    def _drop_cycle(self, run: RunName) -> None:
        """Remove a run and the earlier runs of its cycle."""
        for number in range(run.run, -1, -1):
            if str(structs.replace(run, run=number)) in self._runs:
                self._drop(structs.replace(run, run=number))

    def _drop(self, run: RunName) -> None:
        self._cleaned.update(runs=1, node_tasks=self._forget_run(str(run)))
        if not any(other.cycle == run.cycle for other in self._kept.get(run.flow_id, ())):
            self._logs.pop((run.flow_id, run.cycle), None)
