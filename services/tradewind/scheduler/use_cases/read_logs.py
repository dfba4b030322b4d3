"""Execution logs: the scheduler's own lines and those of nodes, merged by time."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_log import cycle_log
from tradewind.scheduler.domain.log_line import LogLevel, LogLine
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.cycles import ChainStateRepository, CycleRecords
from tradewind.scheduler.ports.logs import LogLines
from tradewind.scheduler.ports.peers import NodeTasks
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.server.paging import Page

LOGGED_CYCLES = 5


class LogPosition(msgspec.Struct, array_like=True, frozen=True):
    """How far lines have been read: the cycle, the number of the scheduler's own lines, and the last line of a node."""

    cycle: int
    own_lines: int = 0
    node_line: str = ""


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Which lines are wanted: those of one node and its items, or of one item, if not empty, of at least this level."""

    node_id: str = ""
    least: LogLevel = LogLevel.DEBUG

    def matches(self, line: LogLine) -> bool:
        """Say whether a line is wanted."""
        named = ("", line.node_id, line.node_id.partition(":")[0])
        return line.level.severity >= self.least.severity and self.node_id in named


class ReadLogs:
    """Reads logs in bounded pieces."""

    def __init__(
        self, read: ReadFlows, cycles: CycleRecords, states: ChainStateRepository, logs: LogLines, node_tasks: NodeTasks
    ) -> None:
        self._read = read
        self._cycles = cycles
        self._states = states
        self._logs = logs
        self._node_tasks = node_tasks

    async def page(
        self, flow_id: str, cycle: int | None, wanted: LineFilter, after: LogPosition | None, limit: int
    ) -> tuple[list[LogLine], LogPosition | None]:
        """Return up to `limit` lines of a cycle, or of the newest five, oldest first, and where the next page begins.

        There are fewer when one message would not hold them. Raises NotFound when there is no such flow or cycle,
        PeerUnavailable when the node task manager is away.
        """
        await self._read.flow(flow_id)
        page: Page[LogLine] = Page(limit)
        last: LogPosition | None = None
        for state in await self._cycles_to_read(flow_id, cycle):
            if after is not None and state.name.cycle < after.cycle:
                continue
            start = after if after is not None and after.cycle == state.name.cycle else None
            async for line, position in self.of_cycle(state, start):
                if not wanted.matches(line):
                    continue
                if not page.add(line, len(line.text)):
                    return page.items, last
                last = position
        return page.items, None

    async def of_cycle(
        self, state: ChainState, after: LogPosition | None = None
    ) -> AsyncIterator[tuple[LogLine, LogPosition]]:
        """Yield the lines of a cycle, oldest first, each with the position after it."""
        cycle = state.name.cycle
        place, node_line = (after.own_lines, after.node_line) if after is not None else (0, "")
        own_lines = cycle_log(await self._runs(state), await self._logs.read(state.name.flow_id, cycle))
        chunk: list[LogLine] = []
        more = True
        while True:
            if not chunk and more:
                chunk, more = await self._node_tasks.node_logs(state, node_line)
                chunk.reverse()
            if place < len(own_lines) and (not chunk or own_lines[place].at_ms <= chunk[-1].at_ms):
                line = own_lines[place]
                place += 1
            elif chunk:
                line = chunk.pop()
                node_line = line.log_id
            else:
                return
            yield line, LogPosition(cycle, place, node_line)

    async def _runs(self, state: ChainState) -> list[ChainState]:
        """Return the runs of a cycle, in order; the run of `state` as it is given."""
        flow_id, cycle, _ = state.name
        latest = await self._cycles.latest_run(flow_id, cycle)
        if latest is None or latest.run == 0:
            return [state]
        found = await self._states.load_many([RunName(flow_id, cycle, run) for run in range(latest.run + 1)])
        return [state if each.name == state.name else each for each in found if each is not None]

    async def _cycles_to_read(self, flow_id: str, cycle: int | None) -> list[ChainState]:
        """Return the latest runs of the cycles that may have lines, oldest first."""
        if cycle is not None:
            return [await self._read.cycle(flow_id, cycle, None)]
        found: dict[int, ChainState] = {}
        below: RunName | None = None
        while len(found) < LOGGED_CYCLES:
            states = await self._cycles.newest(flow_id, below, LOGGED_CYCLES)
            for state in states:
                found.setdefault(state.name.cycle, state)
            if len(states) < LOGGED_CYCLES:
                break
            # A cycle may have any number of runs: go on with the cycle before.
            below = RunName(flow_id, states[-1].name.cycle)
        return list(found.values())[:LOGGED_CYCLES][::-1]
