"""A worker process: offers node types and runs node tasks until it is stopped."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc

from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceStub
from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from tradewind.codec import Codec, codec_of
from tradewind.flow.values import Duration
from tradewind.grpc_engine.bearer import token_of, with_token
from tradewind.tls import SYSTEM, Security, TlsFiles, security_of, server_credentials
from tradewind.tls.channels import target_of
from tradewind.worker import processes
from tradewind.worker.called import CalledLink, reachable_at
from tradewind.worker.channel import open_channel
from tradewind.worker.coding import CodedMemories, CodedRunner
from tradewind.worker.errors import WorkerError
from tradewind.worker.executor import Executor
from tradewind.worker.identity import Identity, default_worker_id, labels_of
from tradewind.worker.link import Link
from tradewind.worker.loop_watch import LoopWatch
from tradewind.worker.nodes import AnyNode
from tradewind.worker.offered import as_list, by_type, check_number, checked_seconds, default_capacity, targets_of
from tradewind.worker.outbox import Outbox
from tradewind.worker.processes.pool import ProcessPool
from tradewind.worker.program import is_importing, run_program
from tradewind.worker.registration import Registration
from tradewind.worker.running import NodeRunner
from tradewind.worker.scheduler_link import SchedulerLink
from tradewind.worker.secrets import SecretResolver, SecretSource
from tradewind.worker.stay import Departure, Stay
from tradewind.worker.stream import WorkStream
from tradewind.worker.telemetry import configure_worker_logging, open_metrics
from tradewind.worker.threads import ThreadPool
from tradewind.worker.tracing import NodeTracer

if TYPE_CHECKING:
    from tradewind.worker.metrics import WorkerMetrics

logger = logging.getLogger("tradewind.worker")

DEFAULT_ADDRESS = "localhost:7700"
ADDRESS_VARIABLE = "TRADEWIND_ADDRESS"
NODE_TASK_MANAGER_ADDRESS_VARIABLE = "TRADEWIND_NODE_TASK_MANAGER_ADDRESS"
REGISTRY_ADDRESS_VARIABLE = "TRADEWIND_REGISTRY_ADDRESS"
SCHEDULER_ADDRESS_VARIABLE = "TRADEWIND_SCHEDULER_ADDRESS"

MAX_CAPACITY = 10_000
"""The largest capacity that a node task manager accepts."""


class Worker:
    """Runs one or more nodes for a node task manager: `Worker([moving_average]).run()`.

    `address` is the node task manager (else TRADEWIND_NODE_TASK_MANAGER_ADDRESS), `registry_address` the registry (else
    TRADEWIND_REGISTRY_ADDRESS), `scheduler_address` the scheduler, which keeps the variables of nodes (else
    TRADEWIND_SCHEDULER_ADDRESS). A server that is not named is at `address`, else TRADEWIND_ADDRESS, else
    localhost:7700. `worker_id` must differ between processes; by default it is made of host, process id and random
    digits. `secrets` returns secrets by name, instead of TRADEWIND_SECRET_<NAME> and the files in
    TRADEWIND_SECRETS_DIR. `codec`, or else the one that TRADEWIND_CODEC names, encodes what nodes emit and keep, and
    decodes what they get.

    `capacity` is the most node tasks that it holds: by default 100 or, if no node runs on the event loop, as many as
    can run at once. `thread_capacity` is how many plain functions run at once, and `process_capacity` how many nodes
    with `process=True`: by default one for each processor of the machine; 0 runs them in this process, for a debugger.
    `grace` is how long running nodes have to finish when the worker leaves: seconds, text such as "5m", or a timedelta.
    `credentials` are certificates as TlsFiles, or gRPC's own; without them, the variables TRADEWIND_TLS_CA, _CERT and
    _KEY apply, or else plain text. `token`, or else TRADEWIND_TOKEN, identifies the worker to stacks that ask for it.

    With `listen` (`host:port`, port 0 for a free one), it opens no stream but is called there: it serves WorkerService,
    and registers `api_url`, by default the address it listens on. It serves TLS with `server_credentials`, or when
    `credentials` are files with a certificate: callers must then show a certificate that the CA has signed.

    It leaves, and `serve` raises WorkerError, when `stuck_thread_limit` threads go on although their nodes were told to
    stop; 0 means no limit. A worker serves only once.

    Raises WorkerError when two nodes have the same type or a process could not find its node, ValueError or TypeError
    for any other argument that is invalid.
    """

    def __init__(
        self,
        nodes: Iterable[AnyNode] | AnyNode,
        *,
        address: str | None = None,
        registry_address: str | None = None,
        scheduler_address: str | None = None,
        worker_id: str | None = None,
        capacity: int | None = None,
        thread_capacity: int = 32,
        process_capacity: int | None = None,
        stuck_thread_limit: int = 16,
        grace: Duration = 10.0,
        secrets: SecretSource | None = None,
        codec: Codec | None = None,
        labels: Mapping[str, str] | None = None,
        credentials: Security = None,
        token: str | None = None,
        listen: str | None = None,
        api_url: str | None = None,
        server_credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        if process_capacity is None:
            process_capacity = os.cpu_count() or 1
        check_number("process_capacity", process_capacity, 0)
        check_number("stuck_thread_limit", stuck_thread_limit, 0)
        check_number("thread_capacity", thread_capacity, 1)
        nodes = as_list(nodes)
        self._nodes = by_type(nodes)
        if capacity is None:
            capacity = default_capacity(nodes, thread_capacity, process_capacity)
        check_number("capacity", capacity, 1, MAX_CAPACITY)
        self._process_capacity = process_capacity
        self._targets = targets_of(self._nodes.values()) if process_capacity else {}
        default_address = address or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
        self._address = address or os.environ.get(NODE_TASK_MANAGER_ADDRESS_VARIABLE) or default_address
        self._registry_address = registry_address or os.environ.get(REGISTRY_ADDRESS_VARIABLE) or default_address
        self._scheduler_address = scheduler_address or os.environ.get(SCHEDULER_ADDRESS_VARIABLE) or default_address
        for server in (self._address, self._registry_address, self._scheduler_address):
            target_of(server)
        self._identity = Identity(worker_id or default_worker_id(), tuple(self._nodes), capacity, labels_of(labels))
        if listen is None and (api_url or server_credentials):
            raise ValueError("api_url and server_credentials are only for a worker with listen: give that as well")
        if listen is not None:
            reachable_at(listen, 0, api_url)
        self._listen = listen
        self._api_url = api_url
        self._server_credentials = server_credentials
        self._thread_capacity = thread_capacity
        self._stuck_thread_limit = stuck_thread_limit
        self._grace = checked_seconds("grace", grace)
        self._secrets = SecretResolver(secrets)
        self._codec = codec_of(codec)
        self._credentials = security_of(credentials)
        self._token = token_of(token)
        self._served = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: WorkerError | None = None
        self._departure = Departure()
        self._ready = asyncio.Event()
        self._executor: Executor | None = None
        self._background: asyncio.Task[None] | None = None
        self._tracer: NodeTracer | None = None
        self._metrics: WorkerMetrics | None = None

    @property
    def worker_id(self) -> str:
        """The id of this worker."""
        return self._identity.worker_id

    @property
    def nodes(self) -> list[AnyNode]:
        """The nodes that it offers."""
        return list(self._nodes.values())

    @property
    def running(self) -> int:
        """How many node tasks it holds now."""
        return len(self._executor.held) if self._executor else 0

    def run(self) -> None:
        """Serve on an event loop of its own until SIGTERM or SIGINT; then leave within the grace and return.

        Logs to stderr as `tradewind worker` does, unless the program has configured logging. A second signal ends it at
        once with SystemExit, or ends the process if a node holds the loop. Raises WorkerError when a server refuses
        this worker, and when called outside of the main thread or in a running loop.
        """
        if not logging.getLogger().handlers:
            configure_worker_logging()
        run_program(self.serve, self._leave_on_signal, self._thread_capacity)

    async def serve(self) -> None:
        """Serve until `stop` is called or the registry asks the worker to leave; signals are left to the caller.

        Raises WorkerError when a server refuses this worker, or too many of its threads are stuck.
        """
        if self._served:
            raise WorkerError("a worker can serve only once: make another one")
        if processes.in_child or is_importing():
            raise WorkerError(
                'importing it would start a worker: put the code that runs the worker under if __name__ == "__main__"'
            )
        self._served = True
        self._loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            self._tracer = NodeTracer.configured()
            if self._tracer is not None:
                stack.push_async_callback(self._tracer.leave)
            self._metrics = await open_metrics(self._identity.capacity, lambda: self.running)
            if self._metrics is not None:
                stack.push_async_callback(self._metrics.close)
            channels: dict[str, grpc.aio.Channel] = {}
            for address in (self._address, self._registry_address, self._scheduler_address):
                if address not in channels:
                    channels[address] = await stack.enter_async_context(self._open_channel(address))
            memories = self._memories(channels[self._scheduler_address])
            await self._serve(channels[self._address], channels[self._registry_address], memories)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Take no more work, let nodes finish within the grace, give back the rest and leave; `serve` returns then.

        Any thread, or a signal handler, may call it.
        """
        if self._loop is None:
            self._departure.stop()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, so it has left
            self._loop.call_soon_threadsafe(self._departure.stop)

    def _leave_on_signal(self) -> bool:
        """Begin to leave; return False if it was leaving already."""
        if self._departure.stopping.is_set():
            return False
        logger.info("leaving: running nodes have %g s to finish", self._grace)
        self._departure.stop()
        return True

    # A simulation overrides these: streams, listening, channels, memories, threads and the watch.

    _stream_type = WorkStream
    _called_type = CalledLink

    def _open_channel(self, address: str) -> grpc.aio.Channel:
        return with_token(open_channel(address, self._credentials), self._token)

    def _memories(self, channel: grpc.aio.Channel) -> SchedulerLink:
        return SchedulerLink(channel)

    def _thread_pool(self) -> ThreadPool:
        return ThreadPool(
            self._thread_capacity, stuck_limit=self._stuck_thread_limit, too_many_stuck=self._leave_for_stuck_threads
        )

    def _loop_watch(self) -> LoopWatch | None:
        on_loop = any(node.is_async and node.type not in self._targets for node in self._nodes.values())
        return LoopWatch(lambda: self.running > 0) if on_loop else None

    def _leave_for_stuck_threads(self, count: int) -> None:
        self._failure = WorkerError(
            f"{count} threads of this worker never ended after their nodes were told to stop, so it has left: start it "
            "again, and make these nodes check ctx.stop_requested, or set process=True"
        )
        logger.error("leaving: %s threads are stuck", count)
        self.stop()

    async def __aenter__(self) -> Self:
        """Serve in the background; return once registered and connected. Raises WorkerError as `serve` does."""
        self._background = asyncio.create_task(self.serve())
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait((self._background, ready), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._background.cancel()
            # It holds its port and its threads until it has left.
            await asyncio.gather(self._background, return_exceptions=True)
            raise
        finally:
            ready.cancel()
        if self._background.done():
            await self._background
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop, and wait until the worker has left."""
        self.stop()
        if self._background is not None:
            await self._background

    async def _serve(
        self, channel: grpc.aio.Channel, registry_channel: grpc.aio.Channel, memories: SchedulerLink
    ) -> None:
        outbox = Outbox(lambda: executor.name_held_tokens())
        executor = self._executor = Executor(
            self._nodes,
            outbox,
            self._runner(),
            memories=memories if self._codec is None else CodedMemories(memories, self._codec),
            tracer=self._tracer,
            metrics=self._metrics,
            watch=self._loop_watch(),
            grace=self._grace,
        )
        stub = NodeTaskManagerServiceStub(channel)
        if self._listen is None:
            offers = [node.offer() for node in self._nodes.values()]
            stream = self._stream_type(stub, self._identity, executor, outbox, offers)
            await self._stay(stream, executor, registry_channel)
            return
        credentials = self._credentials_to_serve()
        called = self._called_type(stub, self._identity, executor, outbox, credentials)
        port = await called.start(self._listen)
        api_url = reachable_at(self._listen, port, self._api_url)
        if credentials is not None and not self._api_url:
            api_url = f"grpcs://{api_url}"
        self._identity = replace(self._identity, api_url=api_url)
        try:
            await self._stay(called, executor, registry_channel)
        finally:
            await called.stop()

    def _credentials_to_serve(self) -> grpc.ServerCredentials | None:
        """Return those that were given, or else those made of certificate files; None for plain text."""
        files = self._credentials
        if self._server_credentials is not None or not isinstance(files, TlsFiles) or not files.cert:
            return self._server_credentials
        return server_credentials(files, require_client_cert=bool(files.ca) and files.ca != SYSTEM)

    def _runner(self) -> NodeRunner:
        threads = self._thread_pool()
        pool = ProcessPool(self._process_capacity, self._targets) if self._targets else None
        if self._codec is None:
            return NodeRunner(self._secrets, threads, pool)
        return CodedRunner(self._codec, self._secrets, threads, pool)

    async def _stay(self, link: Link, executor: Executor, registry_channel: grpc.aio.Channel) -> None:
        registration = Registration(
            RegistryServiceStub(registry_channel),
            self._identity,
            [node.declaration() for node in self._nodes.values()],
            running=lambda: self.running,
            drain=self._departure.leave_when_done,
        )
        await Stay(registration, link, executor, self._departure, self._grace, self._ready).run()
