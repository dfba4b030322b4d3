"""Stops a cycle, or a component or node of a cycle; who did so, why and when is on record."""

from dataclasses import replace

from msgspec import structs

from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTask
from tradewind.scheduler.domain.chain_state import STOP, ChainState, StopRequest
from tradewind.scheduler.domain.cycle_status import CycleStatus, is_terminal
from tradewind.scheduler.domain.log_line import LogLevel, LogText
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.ports.peers import NodeTasks
from tradewind.scheduler.ports.waking import WakeOwner, Work
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.definitions import Definitions
from tradewind.scheduler.use_cases.faults import cycle_ended, kept_changing, names_of
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.scheduler.use_cases.stop_orders import stop_all, stop_order, stop_orders
from tradewind.server.clock import Clock
from tradewind.server.faults import FailedPrecondition, InvalidInput, NotFound, Violation
from tradewind.server.nearest_name import NearestName

_TRIES = 20
_STOP_AGAIN_MS = 1_000


class StopCycle:
    """The stop of a cycle is on record before any other service learns of it; the owner repeats it until the end."""

    def __init__(
        self,
        read: ReadFlows,
        definitions: Definitions,
        states: ChainStateRepository,
        node_tasks: NodeTasks,
        background: Background,
        wake: WakeOwner,
        clock: Clock,
    ) -> None:
        self._read = read
        self._definitions = definitions
        self._states = states
        self._node_tasks = node_tasks
        self._background = background
        self._wake = wake
        self._clock = clock

    async def __call__(
        self,
        flow_id: str,
        cycle: int | None,
        run: int | None,
        by: str,
        reason: str,
        *,
        request_id: str = "",
        once: bool = False,
        wait: bool = False,
    ) -> ChainState:
        """Ask a cycle to stop and return it.

        The first stop spares the components that handle the outcome, a second stop does not; repeating the same request
        does not count as a second stop. With `once`, a cycle that has already been asked to stop is left as it is. With
        `wait`, it returns only once the node task manager has the stop, so that nobody stops many cycles faster than
        that. Raises NotFound, FailedPrecondition for a cycle that has ended in another way, and PeerUnavailable with
        `wait`.
        """
        for _ in range(_TRIES):
            state = await self._read.cycle(flow_id, cycle, run)
            asked = StopRequest(by, reason, self._clock.now_ms(), request_id=request_id)
            stop = _stop_to_record(state, asked, once=once)
            if stop is None:
                return state
            action = "Stopping the nodes that handle the outcome too" if stop.forced else "Stopping"
            log = LogText(LogLevel.WARNING, f'{action}, by "{by}": {reason}')
            stopping = structs.replace(state, stop=stop)
            (result,) = await self._states.update_many([RunUpdate(stopping, (STOP,), _STOP_AGAIN_MS, log)])
            if result.ok:
                self._wake(Work.RUNS, flow_id, _STOP_AGAIN_MS)
                stopping = structs.replace(stopping, version=result.version)
                sending = stop_all(self._node_tasks, stop_orders(stopping))
                if wait:
                    await sending
                else:
                    self._background.begin(sending, "stop of a cycle")
                return stopping
        raise kept_changing(f'the cycle of flow "{flow_id}"', flow_id=flow_id)

    async def component(
        self, flow_id: str, cycle: int | None, run: int | None, component_id: str, by: str, reason: str
    ) -> ChainState:
        """Stop one component of a cycle and return the cycle; the other components go on.

        Raises NotFound, InvalidInput for a component that does not exist, FailedPrecondition for one that has ended,
        PeerUnavailable.
        """
        state = await self._open(flow_id, cycle, run)
        count = state.facts.component_count
        if component_id not in map(str, range(count)):
            known = f'the components are "0" to "{count - 1}"' if count > 1 else 'the only one is "0"'
            raise InvalidInput([Violation("component_id", f'no component "{component_id}"; {known}')])
        if component_id in state.components:
            raise cycle_ended(state) if is_terminal(state.status) else _component_ended(state, component_id)
        order = stop_order(structs.replace(state, stop=StopRequest(by, reason, self._clock.now_ms())))
        await self._node_tasks.stop(replace(order, component_id=component_id))
        await self._note(state, f'Stopping component {component_id}, by "{by}": {reason}')
        return await self._read.cycle(*state.name)

    async def node(
        self, flow_id: str, cycle: int | None, run: int | None, node_id: str, by: str, reason: str
    ) -> NodeTask:
        """Stop one node of a cycle and return its node task; nodes downstream go by their `run_if`.

        Raises NotFound, FailedPrecondition for a cycle that has ended, PeerUnavailable.
        """
        state = await self._open(flow_id, cycle, run)
        planned = await self._definitions.of_run(state)
        known = planned.shape.node_ids if planned else ()
        if node_id not in known:
            raise NotFound("node task", f"{state.name}:{node_id}", hint=NearestName(known).hint(node_id))
        stopped = await self._node_tasks.stop_node(state, node_id, by, reason)
        await self._note(state, f'Stopping node {node_id}, by "{by}": {reason}')
        return stopped

    async def _open(self, flow_id: str, cycle: int | None, run: int | None) -> ChainState:
        state = await self._read.cycle(flow_id, cycle, run)
        if is_terminal(state.status):
            raise cycle_ended(state)
        return state

    async def _note(self, state: ChainState, text: str) -> None:
        """Write a line to the cycle's log, unless the cycle has ended meanwhile: its end says enough."""
        for _ in range(_TRIES):
            (result,) = await self._states.update_many([RunUpdate(state, (), log=LogText(LogLevel.WARNING, text))])
            if result.ok:
                return
            found = await self._states.load(state.name)
            if found is None or is_terminal(found.status):
                return
            state = found


def _stop_to_record(state: ChainState, asked: StopRequest, *, once: bool) -> StopRequest | None:
    """Return the stop that a request leads to, None when it changes nothing. Raises FailedPrecondition."""
    before = state.stop
    if is_terminal(state.status):
        if before is None or state.status is not CycleStatus.CANCELLED:
            raise cycle_ended(state)
        return None
    if before is None:
        return asked
    repeated = once or (bool(asked.request_id) and asked.request_id == before.request_id)
    if state.facts.handlers is None or before.forced or repeated:
        return None
    return replace(before, forced=True)


def _component_ended(state: ChainState, component_id: str) -> FailedPrecondition:
    message = f'component {component_id} of cycle {state.name.cycle} of flow "{state.name.flow_id}" has ended'
    return FailedPrecondition("WRONG_STATUS", message, f"cycles/{state.name}", names_of(state.name))
