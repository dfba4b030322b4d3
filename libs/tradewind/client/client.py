"""The asynchronous client."""

from collections.abc import Iterable, Mapping
from dataclasses import astuple
from types import TracebackType
from typing import Any, NoReturn, Self

import grpc

from tradewind.client.access_calls import AccessCalls
from tradewind.client.ad_hoc_calls import AdHocCalls, Parameters
from tradewind.client.ad_hoc_handles import BatchHandle, TaskHandle
from tradewind.client.addresses import Addresses
from tradewind.client.backfill_calls import BackfillCalls
from tradewind.client.batches import batch_from
from tradewind.client.bulk_job_calls import BulkJobCalls
from tradewind.client.cache_calls import CacheCalls
from tradewind.client.calls import open_channel
from tradewind.client.connection import Connection
from tradewind.client.cycle_calls import CycleCalls
from tradewind.client.dead_letter_calls import DeadLetterCalls
from tradewind.client.doctor_calls import DoctorCalls
from tradewind.client.errors import TradewindError
from tradewind.client.explain_calls import ExplainCalls
from tradewind.client.flow_calls import FlowCalls, Inputs, RunRequest
from tradewind.client.handles import CycleHandle, FlowHandle
from tradewind.client.memory_calls import MemoryCalls
from tradewind.client.messages import describe_value
from tradewind.client.node_task_calls import NodeTaskCalls
from tradewind.client.node_tasks import node_task_from
from tradewind.client.notification_calls import NotificationCalls
from tradewind.client.queue_calls import QueueCalls
from tradewind.client.registry_calls import RegistryCalls
from tradewind.client.rerun_calls import RerunCalls
from tradewind.client.revision_calls import RevisionCalls
from tradewind.client.schedule_calls import ScheduleCalls
from tradewind.client.signal_calls import SignalCalls
from tradewind.client.started import Started
from tradewind.client.task_options import options_of
from tradewind.client.trigger_calls import TriggerCalls
from tradewind.client.wire import Seconds, bounded, seconds_of
from tradewind.codec import Codec, codec_of
from tradewind.flow import Cache, Retry, Timeouts
from tradewind.flow.node_type import NodeType
from tradewind.grpc_engine.bearer import token_of
from tradewind.tls import Security, security_of
from tradewind.tls.channels import target_of


class Client(
    FlowCalls,
    RevisionCalls,
    ScheduleCalls,
    MemoryCalls,
    BackfillCalls,
    CycleCalls,
    RerunCalls,
    BulkJobCalls,
    NodeTaskCalls,
    SignalCalls,
    AdHocCalls,
    DeadLetterCalls,
    NotificationCalls,
    QueueCalls,
    CacheCalls,
    RegistryCalls,
    TriggerCalls,
    DoctorCalls,
    ExplainCalls,
    AccessCalls,
):
    """Talks to a running stack: `async with Client() as client: await client.run_flow("momentum")`.

    `address` is the address of all servers; without it, TRADEWIND_ADDRESS and the variables of single servers apply, or
    else localhost:7700. `timeout` is how long one attempt of a call may take, `patience` how long a call is repeated
    while its server is away; repeating is safe, because every call that changes something carries a request id or does
    the same when it is repeated (`log_in` and `create_token` do not, and are not repeated).
    `user_id` is the user whose flows are registered. Runs share one stream, which costs a third of a call per run; with
    `run_stream=False` each run is a call of its own, for a proxy that spreads calls. `credentials` are certificates as
    TlsFiles, or gRPC's own; without them, the variables TRADEWIND_TLS_CA, _CERT and _KEY apply, or else plain text.
    `codec`, or else the one that TRADEWIND_CODEC names, encodes inputs, parameters and variables that are sent, and
    decodes what is shown. `token`, or else TRADEWIND_TOKEN, identifies the caller to stacks that ask for it. A client
    belongs to one event loop.

    Raises TypeError or ValueError for an argument that no server could be called with.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        addresses: Addresses | None = None,
        timeout: Seconds = 30.0,
        patience: Seconds = 10.0,
        user_id: str = "default",
        credentials: Security = None,
        codec: Codec | None = None,
        token: str | None = None,
        run_stream: bool = True,
    ) -> None:
        given: tuple[str | None, ...] = (address,)
        if addresses is None:
            addresses = Addresses.find(address)
        elif not isinstance(addresses, Addresses):
            raise TypeError(f"addresses must be Addresses, one for each server; {describe_value(addresses)}")
        elif address:
            raise ValueError("give either address or addresses")
        else:
            given = astuple(addresses)
        for each in filter(None, given):
            target_of(each)
        if not isinstance(user_id, str):
            raise TypeError(f"user_id must be text; {describe_value(user_id)}")
        if not seconds_of(timeout):
            raise ValueError("timeout must be above 0: no call could be answered in time")
        self._connection = Connection(
            addresses,
            timeout=bounded(seconds_of(timeout)),
            patience=seconds_of(patience),
            credentials=security_of(credentials),
            codec=codec_of(codec),
            token=token_of(token),
            open_channel=self._open_channel,
        )
        self._user_id = user_id
        self._run_stream = run_stream

    def __repr__(self) -> str:
        """Return where it leads: `Client('localhost:7700')`."""
        addresses = self.addresses
        same = addresses == Addresses.find(addresses.scheduler)
        return f"Client({addresses.scheduler!r})" if same else f"Client(addresses={addresses!r})"

    def __enter__(self) -> NoReturn:
        """Raise TypeError: the client's methods need an event loop."""
        raise TypeError("use `async with Client() as client:`, or SyncClient where there is no event loop")

    def __exit__(self, *exception: object) -> None:
        """Do nothing; Python looks this method up before it calls `__enter__`."""

    async def __aenter__(self) -> Self:
        """Return the client; it connects on its first call."""
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    async def close(self) -> None:
        """Close the connections for good; calls under way, and any made from now on, raise RuntimeError."""
        await self._connection.close()

    @property
    def addresses(self) -> Addresses:
        """The address of each server."""
        return self._connection.addresses

    @property
    def patience(self) -> float:
        """How many seconds a call is repeated while its server is away."""
        return self._connection.patience

    @patience.setter
    def patience(self, seconds: Seconds) -> None:
        self._connection.patience = seconds_of(seconds)

    async def wait_ready(self, timeout: Seconds = 10.0) -> None:
        """Return once every server that runs flows reports that it is ready.

        Raises Unavailable when one does not within `timeout`.
        """
        await self._connection.wait_ready(seconds_of(timeout))

    def flow(self, flow_id: str) -> FlowHandle:
        """Return the handle of a flow, without checking that it exists."""
        return FlowHandle(self, flow_id)

    def cycle(self, flow_id: str, cycle: int, run: int | None = None) -> CycleHandle:
        """Return the handle of a cycle, without checking that it exists."""
        return CycleHandle(self, flow_id, cycle, run)

    async def run_flow(
        self, flow_id: str, inputs: Inputs | None = None, *, wait: Seconds = 0.0, request_id: str | None = None
    ) -> CycleHandle:
        """Run one cycle now, regardless of the flow's schedule and status; `handle.result()` waits for its outputs.

        `inputs` are merged into the inputs of entry nodes; `handle.warnings` lists any that no entry node takes. With
        `wait`, the scheduler answers when the cycle has ended or that time is over, so the result of a short cycle
        takes only one call. Raises NotFound, InvalidInput, Aborted when the flow's overlap policy is skip and a cycle
        is running, WrongStatus while the flow is being deleted.
        """
        started = await self._start_cycle(flow_id, inputs, wait=wait, request_id=request_id)
        return self._handle(started)

    async def rerun_cycle(
        self,
        flow_id: str,
        cycle: int | None = None,
        *,
        from_nodes: Iterable[str] = (),
        inputs: Inputs | None = None,
        reason: str = "",
        wait: Seconds = 0.0,
        request_id: str | None = None,
    ) -> CycleHandle:
        """Run a cycle (the latest if None) again, as a new run of the same number that keeps good results.

        Nodes without a good result run again, as do `from_nodes` and everything downstream of all these. `inputs`
        replace those of the previous run by name, for entry nodes that run again; `handle.warnings` lists any that no
        entry node takes. Raises NotFound, InvalidInput, and WrongStatus while the cycle is running, when there is
        nothing to run again, and when results have expired.
        """
        started = await self._start_rerun(
            flow_id, cycle, from_nodes, inputs, reason=reason, wait=wait, request_id=request_id
        )
        return self._handle(started)

    async def run_flows(
        self, requests: Iterable[RunRequest | str], *, wait: Seconds = 0.0
    ) -> list[CycleHandle | TradewindError]:
        """Run many cycles now, in few messages; a string in `requests` is the id of a flow to run without inputs.

        Returns, in order, a handle for each request, or the error with which it was refused. When runs of a flow have
        inputs of the same names, only the first handle has `warnings` about them. A message has at most 10 000 requests
        and 2 MiB. When one is refused as a whole, as for an id that is not valid, the error is raised if it is the
        first, and otherwise returned for each of its requests.
        """
        results = await self._start_cycles(requests, wait=wait)
        return [result if isinstance(result, TradewindError) else self._handle(result) for result in results]

    def task(self, task_id: str) -> TaskHandle:
        """Return the handle of an ad-hoc task, `task:<id>`, without checking that it exists."""
        return TaskHandle(self, task_id)

    def batch(self, batch_id: str) -> BatchHandle:
        """Return the handle of a batch, without checking that it exists."""
        return BatchHandle(self, batch_id)

    async def submit_task(
        self,
        node_type: str | NodeType,
        parameters: Parameters | None = None,
        *,
        require_worker: bool = False,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        priority: int = 0,
        concurrency: Mapping[str, Any] | None = None,
        rate: Mapping[str, Any] | None = None,
        cache: Cache | str | None = None,
        request_id: str | None = None,
    ) -> TaskHandle:
        """Run one node by itself; `handle.result()` waits for what it emits.

        `node_type` is its name, or the `@node` function itself. `parameters` reach the node as the config of a flow's
        node does; `timeouts`, `retry`, `priority`, `concurrency`, `rate` and `cache` work as for such a node, except
        that by default the task waits for a worker as long as it takes. Raises InvalidInput, including for parameters
        that do not match what live workers have declared; Conflict when `request_id` was used for something else;
        Exhausted. If no live worker offers the node type, raises NotFound with `require_worker`; without it, the handle
        has a warning.
        """
        options = options_of(
            require_worker=require_worker,
            timeouts=timeouts,
            retry=retry,
            priority=priority,
            concurrency=concurrency,
            rate=rate,
            cache=cache,
        )
        answer = await self._submit_task(node_type, parameters, request_id, options)
        task = node_task_from(answer.task)
        return TaskHandle(self, task.node_task_id, record=task, warnings=tuple(answer.warnings))

    async def submit_batch(
        self,
        node_type: str | NodeType,
        parameters: Iterable[Parameters | None],
        *,
        require_worker: bool = False,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        priority: int = 0,
        concurrency: Mapping[str, Any] | None = None,
        rate: Mapping[str, Any] | None = None,
        cache: Cache | str | None = None,
        request_id: str | None = None,
    ) -> BatchHandle:
        """Run one node type once for each of `parameters`: 1 to 10 000 items, 8 MiB in all, accepted all or none.

        `handle.result()` waits for what they emit, in order. Node type, options and errors are as in submit_task, for
        each item; InvalidInput has the faults of all items, at most 100.
        """
        options = options_of(
            require_worker=require_worker,
            timeouts=timeouts,
            retry=retry,
            priority=priority,
            concurrency=concurrency,
            rate=rate,
            cache=cache,
        )
        answer = await self._submit_batch(node_type, parameters, request_id, options)
        batch = batch_from(answer.batch)
        return BatchHandle(self, batch.batch_id, record=batch, warnings=tuple(answer.warnings))

    def _open_channel(self, address: str, security: Security) -> grpc.aio.Channel:
        return open_channel(address, security)

    def _handle(self, started: Started) -> CycleHandle:
        cycle = started.message
        return CycleHandle(self, cycle.flow_id, cycle.cycle, cycle.run, started=started)
