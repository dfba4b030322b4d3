"""What a client asks the scheduler about cycles."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import replace
from datetime import datetime

from tradewind.api.scheduler.v1 import cycle_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client.connection import Connection
from tradewind.client.cycles import (
    CycleDescription,
    CycleRecord,
    CycleStatistics,
    CycleStatus,
    cycle_from,
    signals_from,
    statistics_from,
)
from tradewind.client.flows import flow_status_from
from tradewind.client.following import PATIENCE
from tradewind.client.log_following import follow_flow_logs, follow_logs
from tradewind.client.logs import LogLevel, LogLine, log_line_from
from tradewind.client.messages import build
from tradewind.client.node_tasks import node_task_from
from tradewind.client.started import Started
from tradewind.client.watching import watch
from tradewind.client.wire import Seconds, duration, number_of, numbers_of, seconds_of, timestamp

PAGE = 500
_LONG_POLL_S = 30.0
"""Shorter than the time for which proxies let a call go unanswered, often a minute."""


class CycleCalls:
    """Cycles and their logs."""

    _connection: Connection

    async def get_cycle(
        self, flow_id: str, cycle: int | None = None, run: int | None = None, *, wait: Seconds = 0.0
    ) -> CycleRecord:
        """Return a cycle, the latest if None; with `wait`, once it has ended or that time is over.

        Raises NotFound.
        """
        seconds = seconds_of(wait)
        request = build(pb.GetCycleRequest, flow_id=flow_id, cycle=cycle, run=run, wait=duration(seconds))
        answer = await self._connection.call(self._connection.scheduler.GetCycle, request, extra=seconds)
        return cycle_from(answer.cycle)

    async def _end_of_cycle(self, flow_id: str, cycle: int, run: int | None, patience: float) -> Started:
        """Return a cycle with its outputs once it has ended. Raises NotFound, even for a cycle that is yet to begin."""
        wait = duration(_LONG_POLL_S)
        request = build(pb.GetCycleRequest, flow_id=flow_id, cycle=cycle, run=run, wait=wait, include_outputs=True)
        while True:
            answer = await self._connection.call(
                self._connection.scheduler.GetCycle, request, extra=_LONG_POLL_S, patience=patience
            )
            if answer.cycle.status != cycle_pb2.CYCLE_STATUS_RUNNING:
                return Started(answer, with_outputs=True)
            patience = PATIENCE

    async def list_cycles(
        self,
        flow_id: str,
        *,
        statuses: Iterable[CycleStatus | str] = (),
        started_after: datetime | None = None,
        started_before: datetime | None = None,
    ) -> AsyncIterator[CycleRecord]:
        """Yield the cycles of a flow that are on record, newest first. Raises NotFound."""
        numbers = numbers_of(cycle_pb2.CycleStatus, statuses)
        request = build(
            pb.ListCyclesRequest,
            flow_id=flow_id,
            page_size=PAGE,
            statuses=numbers,
            started_after=timestamp(started_after),
            started_before=timestamp(started_before),
        )
        async for page in self._connection.pages(self._connection.scheduler.ListCycles, request):
            for cycle in page.cycles:
                yield cycle_from(cycle)

    async def describe_cycle(
        self,
        flow_id: str,
        cycle: int | None = None,
        run: int | None = None,
        *,
        include_outputs: bool = False,
        include_logs: bool = True,
    ) -> CycleDescription:
        """Return everything about a cycle, the latest if None. Raises NotFound."""
        whole: CycleDescription | None = None
        token = ""
        while True:
            request = build(
                pb.DescribeCycleRequest,
                flow_id=flow_id,
                cycle=cycle,
                run=run,
                include_outputs=include_outputs,
                omit_logs=not include_logs,
                page_token=token,
            )
            page = await self._connection.call(self._connection.scheduler.DescribeCycle, request)
            nodes = tuple(node_task_from(node) for node in page.nodes)
            signals = signals_from(page.signals)
            if whole is None:
                whole = CycleDescription(
                    cycle=cycle_from(page.cycle),
                    flow_status=flow_status_from(page.flow_status),
                    nodes=nodes,
                    signals=signals,
                    logs=tuple(log_line_from(line) for line in page.logs),
                    statistics=statistics_from(page.statistics),
                )
                # A newer cycle may begin between two pages.
                cycle, run = whole.cycle.cycle, whole.cycle.run
            else:
                whole = replace(whole, nodes=whole.nodes + nodes, signals=whole.signals + signals)
            token = page.next_page_token
            if not token:
                return whole

    async def cycle_statistics(self, flow_id: str, cycle: int | None = None, run: int | None = None) -> CycleStatistics:
        """Return how many nodes of a cycle, the latest if None, have each status. Raises NotFound."""
        request = build(pb.DescribeCycleRequest, flow_id=flow_id, cycle=cycle, run=run, omit_logs=True, page_size=1)
        answer = await self._connection.call(self._connection.scheduler.DescribeCycle, request)
        return statistics_from(answer.statistics)

    def watch_flows(self, *flow_ids: str) -> AsyncGenerator[CycleRecord, None]:
        """Yield the latest cycle of each flow, then every change of their cycles, until the caller stops iterating.

        Continues after a lost connection, with only the last state of each cycle that changed meanwhile. Raises
        NotFound when one of the flows does not exist, Unavailable when the scheduler stays away.
        """
        return watch(self._connection, flow_ids, None)

    def watch_cycle(self, flow_id: str, cycle: int) -> AsyncGenerator[CycleRecord, None]:
        """Yield a cycle as it is now and after every change, until it has ended; wait for it if it is yet to begin.

        Otherwise like `watch_flows`; also raises NotFound when the cycle has passed its retention.
        """
        return watch(self._connection, (flow_id,), cycle)

    async def list_logs(
        self, flow_id: str, cycle: int | None = None, *, node_id: str = "", min_level: LogLevel | str = LogLevel.DEBUG
    ) -> AsyncIterator[LogLine]:
        """Yield the log of a cycle, or of the flow's newest 5 cycles, oldest line first.

        `node_id` is a node, with its items if it runs over a list, or one item, `<node>:<item>`. Raises NotFound,
        InvalidInput.
        """
        async for line in self._lines(_logs_request(flow_id, cycle, node_id, min_level)):
            yield line

    async def _lines(self, request: pb.ListLogsRequest, patience: float = 0.0) -> AsyncIterator[LogLine]:
        async for page in self._connection.pages(self._connection.scheduler.ListLogs, request, patience):
            for line in page.lines:
                yield log_line_from(line)

    def watch_logs(
        self,
        flow_id: str,
        cycle: int | None = None,
        *,
        node_id: str = "",
        min_level: LogLevel | str = LogLevel.DEBUG,
        interval: Seconds = 0.5,
    ) -> AsyncGenerator[LogLine, None]:
        """Yield log lines as `list_logs` does, then new ones, looking for them every `interval`.

        Ends when `cycle` has ended; without one, never: then it goes on with the lines of all later cycles, or of the
        newest 100 after a long absence. Raises NotFound.
        """
        connection = self._connection
        request = _logs_request(flow_id, cycle, node_id, min_level)
        patience = 0.0

        async def page(token: str) -> tuple[list[LogLine], str]:
            request.page_token = token
            answer = await connection.call(connection.scheduler.ListLogs, request, patience=patience)
            return [log_line_from(line) for line in answer.lines], answer.next_page_token

        async def ended() -> bool:
            nonlocal patience
            latest = build(pb.GetCycleRequest, flow_id=flow_id, cycle=cycle)
            answer = await connection.call(connection.scheduler.GetCycle, latest, patience=patience)
            patience = PATIENCE
            return cycle_from(answer.cycle).ended

        async def newest() -> int:
            nonlocal patience
            cycles = build(pb.ListCyclesRequest, flow_id=flow_id, page_size=1)
            answer = await connection.call(connection.scheduler.ListCycles, cycles, patience=patience)
            patience = PATIENCE
            return answer.cycles[0].cycle if answer.cycles else -1

        def lines_of(one: int) -> AsyncIterator[LogLine]:
            return self._lines(_logs_request(flow_id, one, node_id, min_level), patience)

        if cycle is None:
            return follow_flow_logs(page, newest, lines_of, seconds_of(interval))
        return follow_logs(page, ended, seconds_of(interval))


def _logs_request(flow_id: str, cycle: int | None, node_id: str, min_level: LogLevel | str) -> pb.ListLogsRequest:
    return build(
        pb.ListLogsRequest,
        flow_id=flow_id,
        cycle=cycle,
        node_id=node_id,
        min_level=number_of(cycle_pb2.LogLevel, min_level),
        page_size=1000,
    )
