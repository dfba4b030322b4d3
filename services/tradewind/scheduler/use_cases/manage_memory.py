"""Reads and changes the variables that nodes keep, of a cycle or of a flow."""

import asyncio
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from msgspec import structs
from tenacity import RetryError

from tradewind.scheduler.domain.chain_state import MEMORY, RESULT, ChainState, UpdateOutcome, UpdateResult
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.domain.memory import MAX_BYTES, Memory, MemoryChange
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.ports.memories import FlowMemories
from tradewind.scheduler.use_cases.faults import cycle_not_found, memory_closed, memory_conflict, memory_full
from tradewind.scheduler.use_cases.open_states import OpenStates
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.scheduler.use_cases.update_state import retry_conflicts, update_state

_DEADLINE_S = 5.0


@dataclass(frozen=True, slots=True)
class Scope:
    """The owner of the variables: the flow, or with `cycle`, a run of that cycle, the latest unless `run` is given.

    With `run_id`, the run must have that id.
    """

    flow_id: str
    cycle: int | None = None
    run: int | None = None
    run_id: str = ""


class ManageMemory:
    """The variables of a cycle are part of its chain state; those of a flow have a record of their own.

    Callers in this process that change the same variables take turns, so only writers on other replicas cause retries.
    """

    def __init__(
        self, read: ReadFlows, states: ChainStateRepository, memories: FlowMemories, open_states: OpenStates
    ) -> None:
        self._read = read
        self._states = states
        self._memories = memories
        self._open_states = open_states
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def get(self, scope: Scope) -> Memory:
        """Return the variables. Raises NotFound."""
        if scope.cycle is not None:
            return (await self._state(scope)).notes.memory
        memory = await self._memories.load(scope.flow_id)
        if memory is None:
            raise await self._read.not_found(scope.flow_id)
        return memory

    async def change(self, scope: Scope, change: MemoryChange, result_json: str | None = None) -> Memory:
        """Change variables and, with `result_json`, a cycle's result; return the variables as they are then.

        Raises NotFound, FailedPrecondition for a cycle that has ended, Aborted when the version on record is not the
        expected one, Exhausted when the variables would be larger than 64 KiB. A change known by its id is not made
        again.
        """
        if scope.cycle is None:
            async with self._turn(scope.flow_id):
                return await self._change_flow(scope.flow_id, change)
        found = await self._state(scope)
        async with self._turn(str(found.name)):
            return await self._change_cycle(found, change, result_json)

    def _turn(self, owner: str) -> asyncio.Lock:
        return self._turns.setdefault(owner, asyncio.Lock())

    async def _state(self, scope: Scope) -> ChainState:
        state = await self._read.cycle(scope.flow_id, scope.cycle, scope.run)
        if scope.run_id and state.facts.run_id != scope.run_id:
            raise cycle_not_found(scope.flow_id, state.name.cycle, state.name.run)
        return state

    async def _change_cycle(self, found: ChainState, change: MemoryChange, result_json: str | None) -> Memory:
        run, run_id = found.name, found.facts.run_id

        def apply(state: ChainState) -> tuple[ChainState, tuple[str, ...]]:
            if state.facts.run_id != run_id:
                raise cycle_not_found(run.flow_id, run.cycle, run.run)
            if is_terminal(state.status):
                raise memory_closed(state)
            memory = state.notes.memory
            if not memory.has_applied(change):
                memory = _changed(str(run), memory, change)
            notes = replace(state.notes, memory=memory)
            if result_json is None:
                return structs.replace(state, notes=notes), (MEMORY,)
            return structs.replace(state, notes=replace(notes, result_json=result_json)), (MEMORY, RESULT)

        if found.notes.memory.has_applied(change):
            return found.notes.memory
        result, state = await update_state(self._states, run, apply, deadline_s=_DEADLINE_S)
        if result.ok and state is not None:
            if self._open_states.get(run) is not None:
                self._open_states.put((state,))
            return state.notes.memory
        if state is not None and result.outcome is UpdateOutcome.TERMINAL:
            raise memory_closed(state)
        raise cycle_not_found(run.flow_id, run.cycle, run.run)

    async def _change_flow(self, flow_id: str, change: MemoryChange) -> Memory:
        async def once() -> tuple[UpdateResult, Memory]:
            memory = await self._memories.load(flow_id)
            if memory is None:
                raise await self._read.not_found(flow_id)
            if memory.has_applied(change):
                return UpdateResult(UpdateOutcome.OK, memory.version), memory
            changed = _changed(flow_id, memory, change)
            return await self._memories.try_save(flow_id, changed), changed

        try:
            answer: tuple[UpdateResult, Memory] = await retry_conflicts(_DEADLINE_S)(once)
        except RetryError:
            raise memory_conflict(flow_id, -1) from None
        result, memory = answer
        if not result.ok:
            raise await self._read.not_found(flow_id)
        return memory


def _changed(owner: str, memory: Memory, change: MemoryChange) -> Memory:
    if not memory.accepts(change):
        raise memory_conflict(owner, memory.version)
    changed = memory.with_change(change)
    if changed.size > MAX_BYTES and changed.size > memory.size:
        raise memory_full(owner, changed.size)
    return changed
