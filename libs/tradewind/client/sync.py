"""The client for code without an event loop: the asynchronous one, with waiting."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from tradewind.client.ad_hoc_calls import Parameters
from tradewind.client.ad_hoc_handles import BatchHandle, TaskHandle
from tradewind.client.addresses import Addresses
from tradewind.client.background_loop import BackgroundLoop
from tradewind.client.batches import BatchRecord
from tradewind.client.client import Client
from tradewind.client.cycles import CycleRecord
from tradewind.client.errors import TradewindError
from tradewind.client.flow_calls import Inputs, RunRequest
from tradewind.client.handles import CycleHandle, FlowHandle
from tradewind.client.node_tasks import NodeTaskRecord
from tradewind.client.wire import Seconds
from tradewind.codec import Codec
from tradewind.flow import Cache, Retry, Timeouts
from tradewind.tls import Security

Inner = TypeVar("Inner", covariant=True)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class _Sync(Generic[Inner]):
    """The synchronous face of an asynchronous object."""

    def __init__(self, inner: Inner, loop: BackgroundLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __repr__(self) -> str:
        return f"Sync{self._inner!r}"


def _waits(
    method: Callable[Concatenate[Inner, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[_Sync[Inner], Arguments], Result]:
    """Return the method that waits for what `method` returns, with its parameters and documentation."""

    @wraps(method)
    def waiting(self: _Sync[Inner], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return self._loop.wait(method(self._inner, *args, **kwargs))

    return waiting


def _iterates(
    method: Callable[Concatenate[Inner, Arguments], AsyncIterator[Result]],
) -> Callable[Concatenate[_Sync[Inner], Arguments], Iterator[Result]]:
    """Return the method that yields what `method` yields, with its parameters and documentation."""

    @wraps(method)
    def iterating(self: _Sync[Inner], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Iterator[Result]:
        return self._loop.iterate(method(self._inner, *args, **kwargs))

    return iterating


class SyncCycleHandle(_Sync[CycleHandle]):
    """A cycle of a flow, as CycleHandle, with waiting."""

    @property
    def flow_id(self) -> str:
        """The flow."""
        return self._inner.flow_id

    @property
    def cycle(self) -> int:
        """Its number."""
        return self._inner.cycle

    @property
    def record(self) -> CycleRecord | None:
        """What was last heard of it."""
        return self._inner.record

    get = _waits(CycleHandle.get)
    stop = _waits(CycleHandle.stop)
    describe = _waits(CycleHandle.describe)
    watch = _iterates(CycleHandle.watch)
    watch_node = _iterates(CycleHandle.watch_node)
    logs = _iterates(CycleHandle.logs)
    wait = _waits(CycleHandle.wait)
    result = _waits(CycleHandle.result)


class SyncFlowHandle(_Sync[FlowHandle]):
    """A flow, as FlowHandle, with waiting."""

    @property
    def flow_id(self) -> str:
        """Its id."""
        return self._inner.flow_id

    register = _waits(FlowHandle.register)
    describe = _waits(FlowHandle.describe)
    start = _waits(FlowHandle.start)
    stop = _waits(FlowHandle.stop)
    delete = _waits(FlowHandle.delete)
    update = _waits(FlowHandle.update)
    revisions = _iterates(FlowHandle.revisions)
    roll_back = _waits(FlowHandle.roll_back)
    cycles = _iterates(FlowHandle.cycles)
    watch = _iterates(FlowHandle.watch)
    logs = _iterates(FlowHandle.logs)

    def run(self, inputs: Inputs | None = None, *, wait: Seconds = 0.0) -> SyncCycleHandle:
        """Run one cycle now, as Client.run_flow."""
        return SyncCycleHandle(self._loop.wait(self._inner.run(inputs, wait=wait)), self._loop)

    def cycle(self, cycle: int, run: int | None = None) -> SyncCycleHandle:
        """Return the handle of one of its cycles."""
        return SyncCycleHandle(self._inner.cycle(cycle, run), self._loop)


class SyncTaskHandle(_Sync[TaskHandle]):
    """An ad-hoc task, as TaskHandle, with waiting."""

    @property
    def task_id(self) -> str:
        """Its id."""
        return self._inner.task_id

    @property
    def record(self) -> NodeTaskRecord | None:
        """What was last heard of it."""
        return self._inner.record

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may keep it waiting."""
        return self._inner.warnings

    get = _waits(TaskHandle.get)
    progress = _waits(TaskHandle.progress)
    watch = _iterates(TaskHandle.watch)
    logs = _iterates(TaskHandle.logs)
    cancel = _waits(TaskHandle.cancel)
    wait = _waits(TaskHandle.wait)
    result = _waits(TaskHandle.result)


class SyncBatchHandle(_Sync[BatchHandle]):
    """A batch, as BatchHandle, with waiting."""

    @property
    def batch_id(self) -> str:
        """Its id."""
        return self._inner.batch_id

    @property
    def record(self) -> BatchRecord | None:
        """What was last heard of it."""
        return self._inner.record

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may keep it waiting."""
        return self._inner.warnings

    get = _waits(BatchHandle.get)
    progress = _waits(BatchHandle.progress)
    watch = _iterates(BatchHandle.watch)
    items = _iterates(BatchHandle.items)
    logs = _iterates(BatchHandle.logs)
    cancel = _waits(BatchHandle.cancel)
    wait = _waits(BatchHandle.wait)
    result = _waits(BatchHandle.result)


class SyncClient(_Sync[Client]):
    """Client for code without an event loop: `with SyncClient() as client: client.run_flow("momentum").result()`.

    It has the methods of Client with the same parameters and errors; they wait, and iterators are plain ones. Its
    event loop runs in a thread of its own. May be used from several threads.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        addresses: Addresses | None = None,
        timeout: float = 30.0,
        patience: float = 10.0,
        user_id: str = "default",
        credentials: Security = None,
        codec: Codec | None = None,
        token: str | None = None,
    ) -> None:
        client = Client(
            address,
            addresses=addresses,
            timeout=timeout,
            patience=patience,
            user_id=user_id,
            credentials=credentials,
            codec=codec,
            token=token,
        )
        super().__init__(client, BackgroundLoop())

    def __enter__(self) -> Self:
        """Return the client; it connects at its first call."""
        return self

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the connections and end the client's thread."""
        if not self._loop.closed:
            self._loop.wait(self._inner.close())
            self._loop.close()

    wait_ready = _waits(Client.wait_ready)

    register_flow = _waits(Client.register_flow)
    analyze_flow = _waits(Client.analyze_flow)
    get_flow = _waits(Client.get_flow)
    list_flows = _iterates(Client.list_flows)
    start_flow = _waits(Client.start_flow)
    stop_flow = _waits(Client.stop_flow)
    pause_flow = _waits(Client.pause_flow)
    resume_flow = _waits(Client.resume_flow)
    list_firings = _iterates(Client.list_firings)
    next_executions = _waits(Client.next_executions)
    delete_flow = _waits(Client.delete_flow)
    backfill_flow = _waits(Client.backfill_flow)
    list_backfills = _iterates(Client.list_backfills)
    get_backfill = _waits(Client.get_backfill)
    cancel_backfill = _waits(Client.cancel_backfill)
    plan_flow = _waits(Client.plan_flow)
    update_flow = _waits(Client.update_flow)
    list_revisions = _iterates(Client.list_revisions)
    get_revision = _waits(Client.get_revision)
    diff_revisions = _waits(Client.diff_revisions)
    roll_back_flow = _waits(Client.roll_back_flow)
    get_memory = _waits(Client.get_memory)
    update_memory = _waits(Client.update_memory)

    stop_cycle = _waits(Client.stop_cycle)
    start_bulk_job = _waits(Client.start_bulk_job)
    get_bulk_job = _waits(Client.get_bulk_job)
    wait_bulk_job = _waits(Client.wait_bulk_job)
    list_bulk_jobs = _iterates(Client.list_bulk_jobs)
    cancel_bulk_job = _waits(Client.cancel_bulk_job)
    stop_component = _waits(Client.stop_component)
    stop_node = _waits(Client.stop_node)
    get_cycle = _waits(Client.get_cycle)
    list_cycles = _iterates(Client.list_cycles)
    describe_cycle = _waits(Client.describe_cycle)
    cycle_statistics = _waits(Client.cycle_statistics)
    watch_flows = _iterates(Client.watch_flows)
    watch_cycle = _iterates(Client.watch_cycle)
    list_logs = _iterates(Client.list_logs)
    watch_logs = _iterates(Client.watch_logs)

    get_node_task = _waits(Client.get_node_task)
    terminate_node_task = _waits(Client.terminate_node_task)
    signal_node = _waits(Client.signal_node)
    answer_node = _waits(Client.answer_node)
    list_node_tasks = _iterates(Client.list_node_tasks)
    list_worker_tasks = _waits(Client.list_worker_tasks)
    list_dead_letters = _iterates(Client.list_dead_letters)
    redrive_dead_letters = _waits(Client.redrive_dead_letters)
    list_notifications = _iterates(Client.list_notifications)
    watch_notifications = _iterates(Client.watch_notifications)
    count_unread_notifications = _waits(Client.count_unread_notifications)
    mark_notifications_read = _waits(Client.mark_notifications_read)
    send_notification = _waits(Client.send_notification)
    queue_statistics = _waits(Client.queue_statistics)
    run_doctor = _waits(Client.run_doctor)
    explain_flow = _waits(Client.explain_flow)
    explain_node = _waits(Client.explain_node)
    explain_node_task = _waits(Client.explain_node_task)
    get_config = _waits(Client.get_config)
    update_config = _waits(Client.update_config)
    cache_statistics = _waits(Client.cache_statistics)
    clear_cache = _waits(Client.clear_cache)

    get_task = _waits(Client.get_task)
    list_tasks = _iterates(Client.list_tasks)
    cancel_task = _waits(Client.cancel_task)
    watch_task = _iterates(Client.watch_task)
    list_task_logs = _iterates(Client.list_task_logs)

    get_batch = _waits(Client.get_batch)
    list_batches = _iterates(Client.list_batches)
    list_batch_results = _iterates(Client.list_batch_results)
    cancel_batch = _waits(Client.cancel_batch)
    watch_batch = _iterates(Client.watch_batch)

    list_workers = _iterates(Client.list_workers)
    get_worker = _waits(Client.get_worker)
    drain_worker = _waits(Client.drain_worker)
    available_workers = _waits(Client.available_workers)
    list_node_types = _iterates(Client.list_node_types)
    get_node_type = _waits(Client.get_node_type)

    save_trigger = _waits(Client.save_trigger)
    get_trigger = _waits(Client.get_trigger)
    remove_trigger = _waits(Client.remove_trigger)
    list_triggers = _iterates(Client.list_triggers)
    fire_trigger = _waits(Client.fire_trigger)
    pause_trigger = _waits(Client.pause_trigger)
    resume_trigger = _waits(Client.resume_trigger)
    list_trigger_firings = _iterates(Client.list_trigger_firings)
    list_dead_triggers = _iterates(Client.list_dead_triggers)
    redrive_trigger = _waits(Client.redrive_trigger)
    count_triggers = _waits(Client.count_triggers)
    publish_event = _waits(Client.publish_event)
    who_am_i = _waits(Client.who_am_i)
    log_in = _waits(Client.log_in)
    log_out = _waits(Client.log_out)
    create_token = _waits(Client.create_token)
    list_sessions = _waits(Client.list_sessions)
    list_quotas = _waits(Client.list_quotas)
    revoke_session = _waits(Client.revoke_session)
    revoke_sessions = _waits(Client.revoke_sessions)
    set_user = _waits(Client.set_user)
    list_users = _iterates(Client.list_users)

    def flow(self, flow_id: str) -> SyncFlowHandle:
        """Return the handle of a flow, without asking whether there is one."""
        return SyncFlowHandle(self._inner.flow(flow_id), self._loop)

    def cycle(self, flow_id: str, cycle: int, run: int | None = None) -> SyncCycleHandle:
        """Return the handle of a cycle, without asking whether there is one."""
        return SyncCycleHandle(self._inner.cycle(flow_id, cycle, run), self._loop)

    def task(self, task_id: str) -> SyncTaskHandle:
        """Return the handle of an ad-hoc task, without asking whether there is one."""
        return SyncTaskHandle(self._inner.task(task_id), self._loop)

    def batch(self, batch_id: str) -> SyncBatchHandle:
        """Return the handle of a batch, without asking whether there is one."""
        return SyncBatchHandle(self._inner.batch(batch_id), self._loop)

    def submit_task(
        self,
        node_type: str,
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
    ) -> SyncTaskHandle:
        """Run one node by itself, as Client.submit_task; `.result()` waits for what it emits."""
        submitted = self._inner.submit_task(
            node_type,
            parameters,
            require_worker=require_worker,
            timeouts=timeouts,
            retry=retry,
            priority=priority,
            concurrency=concurrency,
            rate=rate,
            cache=cache,
            request_id=request_id,
        )
        return SyncTaskHandle(self._loop.wait(submitted), self._loop)

    def submit_batch(
        self,
        node_type: str,
        parameters: Sequence[Parameters | None],
        *,
        require_worker: bool = False,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        priority: int = 0,
        concurrency: Mapping[str, Any] | None = None,
        rate: Mapping[str, Any] | None = None,
        cache: Cache | str | None = None,
        request_id: str | None = None,
    ) -> SyncBatchHandle:
        """Run one node type with each of `parameters`, as Client.submit_batch; `.result()` waits for what they emit."""
        submitted = self._inner.submit_batch(
            node_type,
            parameters,
            require_worker=require_worker,
            timeouts=timeouts,
            retry=retry,
            priority=priority,
            concurrency=concurrency,
            rate=rate,
            cache=cache,
            request_id=request_id,
        )
        return SyncBatchHandle(self._loop.wait(submitted), self._loop)

    def run_flow(
        self, flow_id: str, inputs: Inputs | None = None, *, wait: Seconds = 0.0, request_id: str | None = None
    ) -> SyncCycleHandle:
        """Run one cycle now, as Client.run_flow; `.result()` waits for its outputs."""
        handle = self._loop.wait(self._inner.run_flow(flow_id, inputs, wait=wait, request_id=request_id))
        return SyncCycleHandle(handle, self._loop)

    def rerun_cycle(
        self,
        flow_id: str,
        cycle: int | None = None,
        *,
        from_nodes: Iterable[str] = (),
        inputs: Inputs | None = None,
        reason: str = "",
        wait: Seconds = 0.0,
        request_id: str | None = None,
    ) -> SyncCycleHandle:
        """Run a cycle again, keeping good results, as Client.rerun_cycle."""
        begun = self._inner.rerun_cycle(
            flow_id, cycle, from_nodes=from_nodes, inputs=inputs, reason=reason, wait=wait, request_id=request_id
        )
        return SyncCycleHandle(self._loop.wait(begun), self._loop)

    def run_flows(
        self, requests: Sequence[RunRequest | str], *, wait: Seconds = 0.0
    ) -> list[SyncCycleHandle | TradewindError]:
        """Run many cycles now, as Client.run_flows."""
        results = self._loop.wait(self._inner.run_flows(requests, wait=wait))
        return [
            result if isinstance(result, TradewindError) else SyncCycleHandle(result, self._loop) for result in results
        ]
