"""The client for code without an event loop: it waits for the asynchronous client."""

from collections.abc import Iterable
from types import TracebackType
from typing import NoReturn, Self

from tradewind.client.addresses import Addresses
from tradewind.client.background_loop import BackgroundLoop
from tradewind.client.client import Client
from tradewind.client.errors import TradewindError
from tradewind.client.flow_calls import RunRequest
from tradewind.client.sync_face import SyncFace, faces, iterates, waits, waits_for
from tradewind.client.sync_handles import SyncBatchHandle, SyncCycleHandle, SyncFlowHandle, SyncTaskHandle
from tradewind.client.wire import Seconds
from tradewind.codec import Codec
from tradewind.tls import Security


class SyncClient(SyncFace[Client]):
    """Client for code without an event loop: `with SyncClient() as client: client.run_flow("momentum").result()`.

    It has the methods of Client, with the same parameters and errors; they wait for their result, and iterators are
    plain ones. Its event loop runs in a thread of its own. It may be used from several threads.
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
        client = Client(
            address,
            addresses=addresses,
            timeout=timeout,
            patience=patience,
            user_id=user_id,
            credentials=credentials,
            codec=codec,
            token=token,
            run_stream=run_stream,
        )
        super().__init__(client, BackgroundLoop())

    def __enter__(self) -> Self:
        """Return the client; it connects on its first call."""
        return self

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client."""
        self.close()

    async def __aenter__(self) -> NoReturn:
        """Raise TypeError: the client's methods would hold up the event loop."""
        raise TypeError("use `with SyncClient() as client:`, or Client where there is an event loop")

    async def __aexit__(self, *exception: object) -> None:
        """Do nothing; Python looks this method up before it calls `__aenter__`."""

    @property
    def addresses(self) -> Addresses:
        """The address of each server."""
        return self._inner.addresses

    @property
    def patience(self) -> float:
        """How many seconds a call is repeated while its server is away."""
        return self._inner.patience

    @patience.setter
    def patience(self, seconds: Seconds) -> None:
        self._inner.patience = seconds

    def close(self) -> None:
        """Close the connections and end the client's thread; calls under way in other threads raise RuntimeError."""
        self._loop.close(self._inner.close)

    wait_ready = waits(Client.wait_ready)

    register_flow = waits(Client.register_flow)
    analyze_flow = waits(Client.analyze_flow)
    get_flow = waits(Client.get_flow)
    list_flows = iterates(Client.list_flows)
    start_flow = waits(Client.start_flow)
    stop_flow = waits(Client.stop_flow)
    pause_flow = waits(Client.pause_flow)
    resume_flow = waits(Client.resume_flow)
    list_firings = iterates(Client.list_firings)
    next_executions = waits(Client.next_executions)
    delete_flow = waits(Client.delete_flow)
    backfill_flow = waits(Client.backfill_flow)
    list_backfills = iterates(Client.list_backfills)
    get_backfill = waits(Client.get_backfill)
    cancel_backfill = waits(Client.cancel_backfill)
    plan_flow = waits(Client.plan_flow)
    update_flow = waits(Client.update_flow)
    list_revisions = iterates(Client.list_revisions)
    get_revision = waits(Client.get_revision)
    diff_revisions = waits(Client.diff_revisions)
    roll_back_flow = waits(Client.roll_back_flow)
    get_memory = waits(Client.get_memory)
    update_memory = waits(Client.update_memory)

    stop_cycle = waits(Client.stop_cycle)
    start_bulk_job = waits(Client.start_bulk_job)
    get_bulk_job = waits(Client.get_bulk_job)
    wait_bulk_job = waits(Client.wait_bulk_job)
    list_bulk_jobs = iterates(Client.list_bulk_jobs)
    cancel_bulk_job = waits(Client.cancel_bulk_job)
    stop_component = waits(Client.stop_component)
    stop_node = waits(Client.stop_node)
    get_cycle = waits(Client.get_cycle)
    list_cycles = iterates(Client.list_cycles)
    describe_cycle = waits(Client.describe_cycle)
    cycle_statistics = waits(Client.cycle_statistics)
    watch_flows = iterates(Client.watch_flows)
    watch_cycle = iterates(Client.watch_cycle)
    list_logs = iterates(Client.list_logs)
    watch_logs = iterates(Client.watch_logs)

    get_node_task = waits(Client.get_node_task)
    terminate_node_task = waits(Client.terminate_node_task)
    signal_node = waits(Client.signal_node)
    answer_node = waits(Client.answer_node)
    list_node_tasks = iterates(Client.list_node_tasks)
    connected_since = waits(Client.connected_since)
    list_worker_tasks = iterates(Client.list_worker_tasks)
    list_dead_letters = iterates(Client.list_dead_letters)
    redrive_dead_letters = waits(Client.redrive_dead_letters)
    list_notifications = iterates(Client.list_notifications)
    watch_notifications = iterates(Client.watch_notifications)
    count_unread_notifications = waits(Client.count_unread_notifications)
    mark_notifications_read = waits(Client.mark_notifications_read)
    send_notification = waits(Client.send_notification)
    queue_statistics = waits(Client.queue_statistics)
    run_doctor = waits(Client.run_doctor)
    explain_flow = waits(Client.explain_flow)
    explain_node = waits(Client.explain_node)
    explain_node_task = waits(Client.explain_node_task)
    get_config = waits(Client.get_config)
    update_config = waits(Client.update_config)
    cache_statistics = waits(Client.cache_statistics)
    clear_cache = waits(Client.clear_cache)

    get_task = waits(Client.get_task)
    list_tasks = iterates(Client.list_tasks)
    cancel_task = waits(Client.cancel_task)
    watch_task = iterates(Client.watch_task)
    list_task_logs = iterates(Client.list_task_logs)

    get_batch = waits(Client.get_batch)
    list_batches = iterates(Client.list_batches)
    list_batch_results = iterates(Client.list_batch_results)
    cancel_batch = waits(Client.cancel_batch)
    delete_batch = waits(Client.delete_batch)
    watch_batch = iterates(Client.watch_batch)

    list_workers = iterates(Client.list_workers)
    get_worker = waits(Client.get_worker)
    drain_worker = waits(Client.drain_worker)
    available_workers = waits(Client.available_workers)
    list_node_types = iterates(Client.list_node_types)
    get_node_type = waits(Client.get_node_type)

    save_trigger = waits(Client.save_trigger)
    get_trigger = waits(Client.get_trigger)
    remove_trigger = waits(Client.remove_trigger)
    list_triggers = iterates(Client.list_triggers)
    fire_trigger = waits(Client.fire_trigger)
    pause_trigger = waits(Client.pause_trigger)
    resume_trigger = waits(Client.resume_trigger)
    list_trigger_firings = iterates(Client.list_trigger_firings)
    list_dead_triggers = iterates(Client.list_dead_triggers)
    redrive_trigger = waits(Client.redrive_trigger)
    count_triggers = waits(Client.count_triggers)
    publish_event = waits(Client.publish_event)
    who_am_i = waits(Client.who_am_i)
    log_in = waits(Client.log_in)
    log_out = waits(Client.log_out)
    create_token = waits(Client.create_token)
    list_sessions = iterates(Client.list_sessions)
    list_quotas = iterates(Client.list_quotas)
    revoke_session = waits(Client.revoke_session)
    revoke_sessions = waits(Client.revoke_sessions)
    set_user = waits(Client.set_user)
    list_users = iterates(Client.list_users)

    flow = faces(Client.flow, SyncFlowHandle)
    cycle = faces(Client.cycle, SyncCycleHandle)
    task = faces(Client.task, SyncTaskHandle)
    batch = faces(Client.batch, SyncBatchHandle)
    run_flow = waits_for(Client.run_flow, SyncCycleHandle)
    rerun_cycle = waits_for(Client.rerun_cycle, SyncCycleHandle)
    submit_task = waits_for(Client.submit_task, SyncTaskHandle)
    submit_batch = waits_for(Client.submit_batch, SyncBatchHandle)

    def run_flows(
        self, requests: Iterable[RunRequest | str], *, wait: Seconds = 0.0
    ) -> list[SyncCycleHandle | TradewindError]:
        """Run many cycles now; see Client.run_flows."""
        results = self._loop.wait(self._inner.run_flows(requests, wait=wait))
        return [
            result if isinstance(result, TradewindError) else SyncCycleHandle(result, self._loop) for result in results
        ]
