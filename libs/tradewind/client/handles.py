"""Handles: the id of a flow or a cycle, with methods to work with it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tradewind.client.cycles import CycleDescription, CycleRecord, CycleStatus
from tradewind.client.definitions import Definition
from tradewind.client.errors import CycleFailed, NotFound, TimedOut, WrongStatus
from tradewind.client.flow_calls import FlowDescription, Inputs
from tradewind.client.flows import FlowRecord, RegisteredFlow
from tradewind.client.following import PATIENCE
from tradewind.client.logs import LogLevel, LogLine
from tradewind.client.revisions import RevisedFlow, RevisionRecord
from tradewind.client.started import Started
from tradewind.client.task_events import WatchedTask
from tradewind.client.wire import Seconds, seconds_of

if TYPE_CHECKING:
    from tradewind.client.client import Client

Outputs = Mapping[str, Mapping[str, Any]]
"""What nodes emitted: by node, by handle."""
_SUBMISSION_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)


class FlowHandle:
    """A flow by its id; making a handle does not check that the flow exists."""

    def __init__(self, client: "Client", flow_id: str) -> None:
        self._client = client
        self.flow_id = flow_id

    def __repr__(self) -> str:
        return f"FlowHandle({self.flow_id!r})"

    async def register(self, definition: Definition, *, labels: Mapping[str, str] | None = None) -> RegisteredFlow:
        """Register the flow, or a new revision of it. Raises InvalidInput with every fault."""
        return await self._client.register_flow(self.flow_id, definition, labels=labels)

    async def describe(self) -> FlowDescription:
        """Return its record and its latest cycle. Raises NotFound."""
        return await self._client.get_flow(self.flow_id)

    async def start(self, *, at: datetime | None = None) -> FlowRecord:
        """Start its schedule; see Client.start_flow. Raises NotFound."""
        return await self._client.start_flow(self.flow_id, at=at)

    async def stop(self, *, reason: str = "") -> FlowRecord:
        """Begin no more cycles and stop what is running. Raises NotFound."""
        return await self._client.stop_flow(self.flow_id, reason=reason)

    async def delete(self, *, wait: Seconds = 30.0) -> bool:
        """Delete the flow with its history; return whether all is gone within `wait`. Raises NotFound."""
        return await self._client.delete_flow(self.flow_id, wait=wait)

    async def update(self, changes: Mapping[str, Any], *, note: str = "", etag: str = "") -> RevisedFlow:
        """Change fields of the flow; see Client.update_flow. Raises NotFound, InvalidInput, Aborted."""
        return await self._client.update_flow(self.flow_id, changes, note=note, etag=etag)

    def revisions(self) -> AsyncIterator[RevisionRecord]:
        """Yield its revisions on record, newest first. Raises NotFound."""
        return self._client.list_revisions(self.flow_id)

    async def roll_back(self, revision: int, *, note: str = "", etag: str = "") -> RevisedFlow:
        """Go back to an older revision; see Client.roll_back_flow. Raises NotFound, InvalidInput, Aborted."""
        return await self._client.roll_back_flow(self.flow_id, revision, note=note, etag=etag)

    async def run(
        self, inputs: Inputs | None = None, *, wait: Seconds = 0.0, request_id: str | None = None
    ) -> "CycleHandle":
        """Run one cycle now; see Client.run_flow."""
        return await self._client.run_flow(self.flow_id, inputs, wait=wait, request_id=request_id)

    def cycle(self, cycle: int, run: int | None = None) -> "CycleHandle":
        """Return the handle of one of its cycles."""
        return CycleHandle(self._client, self.flow_id, cycle, run)

    def cycles(self, *, statuses: Iterable[CycleStatus | str] = ()) -> AsyncIterator[CycleRecord]:
        """Yield its cycles on record, newest first. Raises NotFound."""
        return self._client.list_cycles(self.flow_id, statuses=statuses)

    def watch(self) -> AsyncGenerator[CycleRecord, None]:
        """Yield its latest cycle, then every change of a cycle, until the caller stops iterating. Raises NotFound."""
        return self._client.watch_flows(self.flow_id)

    def logs(self, *, min_level: LogLevel | str = LogLevel.DEBUG) -> AsyncIterator[LogLine]:
        """Yield the logs of its newest cycles, oldest first. Raises NotFound."""
        return self._client.list_logs(self.flow_id, min_level=min_level)


class CycleHandle:
    """A cycle of a flow by its number, and by its run if that is known; `record` is its last known state."""

    def __init__(
        self, client: "Client", flow_id: str, cycle: int, run: int | None = None, *, started: Started | None = None
    ) -> None:
        self._client = client
        self.flow_id = flow_id
        self.cycle = cycle
        self.run = run
        self._started = self._ran_by = started
        self._record: CycleRecord | None = None
        self._outputs: Outputs | None = None

    def __repr__(self) -> str:
        return f"CycleHandle({self.flow_id!r}, {self.cycle})"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Inputs that no entry node takes, such as misspelt ones, when it was just run."""
        return self._ran_by.warnings if self._ran_by is not None else ()

    @property
    def record(self) -> CycleRecord | None:
        """Its last known state."""
        if self._record is None and self._started is not None:
            self._record = self._started.record()
        return self._record

    async def get(self) -> CycleRecord:
        """Return the cycle as it is now. Raises NotFound."""
        self._record = record = await self._client.get_cycle(self.flow_id, self.cycle, self.run)
        return record

    async def describe(self, *, include_outputs: bool = False) -> CycleDescription:
        """Return everything about the cycle: nodes, signals, logs, statistics. Raises NotFound."""
        return await self._client.describe_cycle(self.flow_id, self.cycle, self.run, include_outputs=include_outputs)

    async def watch(self) -> AsyncGenerator[CycleRecord, None]:
        """Yield the cycle as it is now and after every change, until it has ended.

        Waits for a cycle that is yet to begin. Raises NotFound, also for a cycle that has passed its retention.
        """
        async with aclosing(self._client.watch_cycle(self.flow_id, self.cycle)) as states:
            async for record in states:
                if self.run is not None and record.run != self.run:
                    # A later run has begun, so this one has ended.
                    yield await self.get()
                    return
                yield record

    async def watch_node(self, node_id: str, *, after: str = "") -> AsyncGenerator[WatchedTask, None]:
        """Yield one of its nodes as it is now and after each event; see Client.watch_task.

        `node_id` may name an item of a node that runs over a list, `<node_id>:<item>`. Raises NotFound.
        """
        run = self.run if self.run is not None else (await self.get()).run
        pauses = iter(_SUBMISSION_PAUSES_S)
        while True:
            states = self._client.watch_task(f"{self.flow_id}:{self.cycle}:{run}:{node_id}", after=after)
            try:
                async with aclosing(states):
                    async for state in states:
                        pauses = iter(())
                        yield state
                return
            except NotFound:
                # A cycle that has just begun may not have reached the node task manager yet.
                pause = next(pauses, None)
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    def logs(self, *, min_level: LogLevel | str = LogLevel.DEBUG) -> AsyncIterator[LogLine]:
        """Yield its log, oldest first. Raises NotFound."""
        return self._client.list_logs(self.flow_id, self.cycle, min_level=min_level)

    async def stop(self, *, reason: str = "") -> CycleRecord:
        """Ask its running nodes to stop. Raises NotFound, WrongStatus when the cycle has ended."""
        self._record = record = await self._client.stop_cycle(self.flow_id, self.cycle, self.run, reason=reason)
        return record

    async def wait(self, timeout: Seconds | None = None) -> CycleRecord:
        """Return the cycle once it has ended in any way, waiting for it if it is yet to begin.

        Raises NotFound as `watch` does, and when another run has its number, as after its flow was deleted and
        registered again; TimedOut when it has not ended after `timeout`.
        """
        known = self.record
        if known is not None and known.ended:
            return known
        seconds = None if timeout is None else seconds_of(timeout)
        try:
            async with asyncio.timeout(seconds):
                started = await self._await_end()
        except TimeoutError:
            raise TimedOut(f"cycle {self.cycle} of {self.flow_id} has not ended after {seconds:g} s") from None
        record = started.record()
        if known is not None and known.run == self.run and known.run_id != record.run_id:
            message = f"cycle {self.cycle} of {self.flow_id} is gone: another run has its number now"
            raise NotFound(message, reason="CYCLE_NOT_FOUND")
        self._started, self._record = started, record
        return record

    async def _await_end(self) -> Started:
        while True:
            patience = 0.0 if self._started is None else PATIENCE
            try:
                return await self._client._end_of_cycle(self.flow_id, self.cycle, self.run, patience)
            except NotFound:
                # It is yet to begin, unless it has passed its retention.
                async with aclosing(self._client.watch_cycle(self.flow_id, self.cycle)) as states:
                    latest = await anext(states)
                if self.run not in (None, latest.run):
                    raise

    async def result(self, timeout: Seconds | None = None) -> Outputs:
        """Wait until the cycle has completed and return what the flow's sink nodes emitted, by node and handle.

        A cycle that is yet to begin is waited for: give a `timeout` where its number may be wrong.

        Raises CycleFailed, with the nodes that failed and why, when it ended in any other way; TimedOut when it has
        not ended after `timeout`; NotFound when the cycle has passed its retention, WrongStatus with the reason
        RESULTS_EXPIRED when just what its nodes emitted has.
        """
        if self._outputs is None:
            self._outputs = self._emitted() or await self._result(timeout)
        return self._outputs

    def _emitted(self) -> Outputs | None:
        """Return the outputs that came with the answer that reported its end, or None, without reading its record."""
        started = self._started
        # A record read since may be of another run, or of a cycle that did not complete.
        return started.outputs() if started is not None and self._record is None else None

    async def _result(self, timeout: Seconds | None) -> Outputs:
        cycle = await self.wait(timeout)
        started = self._started
        outputs = started.outputs() if started is not None and started.message.run == cycle.run else None
        # A cycle that emitted nothing looks like one whose outputs are no longer on record.
        if outputs:
            return outputs
        description = await self._client.describe_cycle(
            self.flow_id, self.cycle, cycle.run, include_outputs=True, include_logs=False
        )
        outputs = {node.node_id: node.outputs for node in description.sinks if node.outputs}
        if not cycle.succeeded:
            raise CycleFailed(cycle, description.failures, outputs)
        if description.gone:
            subject = f"cycles/{self.flow_id}:{self.cycle}:{cycle.run}"
            raise WrongStatus(description.gone, subject=subject, reason="RESULTS_EXPIRED")
        return outputs
