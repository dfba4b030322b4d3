"""Reads flows and cycles."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_outline import CycleOutline
from tradewind.scheduler.domain.cycle_status import CycleStatus, are_open
from tradewind.scheduler.domain.flow_record import FlowOutline, FlowRecord
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.cycles import ChainStateRepository, CycleRecords
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.use_cases.faults import no_such_cycle
from tradewind.scheduler.use_cases.find_readable import find_readable
from tradewind.scheduler.use_cases.similar_flows import no_such_flow, similar_flow
from tradewind.scheduler.use_cases.watch_backlog import weight_of
from tradewind.scheduler.use_cases.whole_flows import pieces
from tradewind.server.faults import NotFound
from tradewind.server.paging import Page
from tradewind.server.reading import UnreadableLog

_LEAST_READ = 50
_AT_ONCE = 500
_MOST_EXAMINED = 5000
"""Of how many flows or cycles one page says whether they are wanted: some 50 ms of work."""
_FIRST_CYCLES, _CYCLES_AT_ONCE = 5, 50
"""How many cycles are read first, and at most: each may have inputs of 1 MiB, of which a message holds one."""


@dataclass(frozen=True, slots=True)
class FlowFilter:
    """Which flows are wanted; empty and 0 mean any. Times in milliseconds."""

    statuses: Collection[FlowStatus] = ()
    labels: Mapping[str, str] | None = None
    created_after_ms: int = 0
    created_before_ms: int = 0
    user_id: str = ""

    @property
    def everything(self) -> bool:
        """Whether every flow is wanted."""
        return not (self.statuses or self.labels or self.created_after_ms or self.created_before_ms or self.user_id)

    def matches(self, flow: FlowOutline | FlowRecord) -> bool:
        """Say whether a flow is wanted."""
        if self.user_id not in ("", flow.user_id):
            return False
        if self.statuses and flow.status not in self.statuses:
            return False
        if flow.created_ms < self.created_after_ms:
            return False
        if self.created_before_ms and flow.created_ms >= self.created_before_ms:
            return False
        return not self.labels or self.labels.items() <= dict(flow.labels).items()


@dataclass(frozen=True, slots=True)
class CycleFilter:
    """Which cycles are wanted; empty and 0 mean any. Times in milliseconds."""

    statuses: Collection[CycleStatus] = ()
    started_after_ms: int = 0
    started_before_ms: int = 0

    def matches(self, cycle: CycleOutline) -> bool:
        """Say whether a cycle is wanted."""
        if self.statuses and cycle.status not in self.statuses:
            return False
        start_ms = cycle.start_ms
        return start_ms >= self.started_after_ms and (not self.started_before_ms or start_ms < self.started_before_ms)


class ReadFlows:
    """Reads flows and cycles from the record."""

    def __init__(self, flows: FlowRecords, cycles: CycleRecords, states: ChainStateRepository) -> None:
        self._flows = flows
        self._cycles = cycles
        self._states = states
        self._unreadable = UnreadableLog(__name__)

    async def flow(self, flow_id: str) -> FlowRecord:
        """Return a flow. Raises NotFound."""
        (flow,) = await self._flows.find([flow_id])
        if flow is None:
            raise await self.not_found(flow_id)
        return flow

    async def not_found(self, flow_id: str) -> NotFound:
        """Return the error for a flow that does not exist."""
        return await no_such_flow(self._flows, flow_id)

    async def sources(self, flow_ids: Sequence[str]) -> list[FlowRecord | None]:
        """Return the flows on whose ends another begins, None for those that do not exist."""
        return await self._flows.find(flow_ids)

    async def similar(self, flow_id: str) -> str:
        """Return a hint at the flow that was most likely meant by the id of one that does not exist, "" for none."""
        return await similar_flow(self._flows, flow_id)

    async def owners(self, flow_ids: Collection[str]) -> set[str]:
        """Return the owners of those of these flows that exist."""
        return {owner for owner in await self._flows.owners(list(flow_ids)) if owner is not None}

    async def latest(self, flow_id: str) -> ChainState | None:
        """Return the latest run of a flow on record, None when there is none."""
        found = await self._cycles.newest(flow_id, None, 1)
        return found[0] if found else None

    async def flows(self, wanted: FlowFilter, after: str, limit: int) -> tuple[list[FlowRecord], str | None]:
        """Return up to `limit` flows with ids greater than `after`, by id, and the next page's `after`, None for none.

        There are fewer, even none, when one message would not hold them, or the next ones wanted are far behind.
        """
        if wanted.everything:
            return await self._all_flows(after, limit)
        page: Page[str] = Page(limit)
        examined = 0
        while True:
            outlines, left = await self._flows.outlines(after, _AT_ONCE if examined else max(limit, _LEAST_READ))
            for flow in outlines:
                if wanted.matches(flow) and not page.add(flow.flow_id, flow.size):
                    return await self._still(wanted, page.items), after
                after = flow.flow_id
            examined += len(outlines)
            after = left
            if not left or examined >= _MOST_EXAMINED:
                return await self._still(wanted, page.items), left or None

    async def _all_flows(self, after: str, limit: int) -> tuple[list[FlowRecord], str | None]:
        """Do as `flows` does where all are wanted: outlines would cost the store four times as much."""
        page: Page[FlowRecord] = Page(limit)
        ids = await self._flows.list_ids(after, limit + 1)
        for some in pieces(ids):
            for flow in await self._still(FlowFilter(), some):
                if not page.add(flow, len(flow.config_json) + len(flow.structure_json)):
                    return page.items, page.items[-1].flow_id
        return page.items, ids[-1] if len(ids) > limit else None

    async def _still(self, wanted: FlowFilter, flow_ids: Sequence[str]) -> list[FlowRecord]:
        """Return those of these flows that are wanted still: since they were outlined, others may have taken ids."""
        found, unreadable = await find_readable(self._flows, flow_ids)
        for error in unreadable.values():
            self._unreadable.note(error)
        return [flow for flow in found.values() if flow is not None and wanted.matches(flow)]

    async def any(self) -> bool:
        """Say whether any flow is on record."""
        return bool(await self._flows.list_ids("", 1))

    async def cycle(self, flow_id: str, cycle: int | None, run: int | None) -> ChainState:
        """Return a cycle, the latest when `cycle` is None, its latest run when `run` is None. Raises NotFound."""
        number = (await self.flow(flow_id)).last_cycle if cycle is None else cycle
        name = await self._cycles.latest_run(flow_id, number) if run is None else RunName(flow_id, number, run)
        state = await self._states.load(name) if name is not None else None
        if state is None:
            raise no_such_cycle(await self.flow(flow_id), cycle, run)
        return state

    async def runs(self, names: Sequence[RunName]) -> list[ChainState]:
        """Return those of these runs that are on record."""
        return [state for state in await self._states.load_many(names) if state is not None]

    async def cycles(
        self, flow_id: str, wanted: CycleFilter, below: RunName | None, limit: int
    ) -> tuple[list[ChainState], RunName | None]:
        """Return up to `limit` runs of a flow, newest first, and the next page's `below`, None for none.

        There are fewer, even none, when one message would not hold them, or the next ones wanted are far behind. Raises
        NotFound.
        """
        await self.flow(flow_id)
        page: Page[ChainState] = Page(limit)
        examined = 0
        while True:
            size = _AT_ONCE if examined else max(limit + 1, _LEAST_READ)
            outlines = await self._cycles.outlines(flow_id, below, size)
            async for state in self._whole([each.name for each in outlines if wanted.matches(each)]):
                # It may have ended since it was outlined.
                if wanted.matches(state.outline) and not page.add(state, weight_of(state)):
                    return page.items, page.items[-1].name
            if len(outlines) < size:
                return page.items, None
            below = outlines[-1].name
            if are_open(wanted.statuses):
                following = await self._cycles.newest_open(flow_id, below)
                if following is None:
                    return page.items, None
                below = RunName(flow_id, following.cycle, following.run + 1)
            examined += size
            if examined >= _MOST_EXAMINED:
                return page.items, below

    async def _whole(self, names: Sequence[RunName]) -> AsyncIterator[ChainState]:
        at, size = 0, _FIRST_CYCLES
        while at < len(names):
            for state in await self.runs(names[at : at + size]):
                yield state
            at, size = at + size, min(2 * size, _CYCLES_AT_ONCE)
