"""The whole engine in one process under a virtual clock; its replicas may crash, freeze, or lose connections."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from tests.system.lives.called_workers import Address, CalledVirtualWorker, WorkerChannel
from tests.system.lives.flows import SECRET
from tests.system.lives.process import Disturbances, Process
from tests.system.lives.stores import LEASE_S, AllStores
from tradewind.access.app import Access
from tradewind.access.settings import AccessSettings
from tradewind.client import Client
from tradewind.node_task_manager.app import NodeTaskManager
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.registry.app import Registry
from tradewind.registry.settings import RegistrySettings
from tradewind.scheduler.app import Scheduler
from tradewind.scheduler.settings import SchedulerSettings
from tradewind.server.bootstrap import Service
from tradewind.server.clock import SystemClock
from tradewind.testing.virtual.channel import LocalChannel
from tradewind.testing.virtual.loop import VirtualLoop
from tradewind.testing.virtual.participants import VirtualClient, VirtualWorker
from tradewind.testing.virtual.pipe import Pipe
from tradewind.testing.virtual.server import LocalServer, Status
from tradewind.trigger.app import TriggerService
from tradewind.trigger.settings import TriggerSettings
from tradewind.worker import Node, WorkerError

WORKERS = 2
QUOTA = 12
"""How many tasks a user may submit in a day, where the access service is asked."""
WEEK_S = 7 * 86_400
USERS = ("default", "ann", "bob")
"""Whose flows there are: of two shards, the last has one alone; of three, everybody has one."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A service in a process of its own."""

    process: Process
    service: Service
    server: LocalServer


class Replicas:
    """The replicas of one service; its methods' names begin with `methods`, and `channels` are those of all callers."""

    def __init__(
        self, name: str, count: int, begin: Callable[[Process], Service], channels: Sequence[LocalChannel]
    ) -> None:
        self.name = name
        self.methods = f"/tradewind.api.{name}."
        self._begin = begin
        self._channels = channels
        self._starting: set[asyncio.Task[None]] = set()
        self.all = [self._new() for _ in range(count)]

    async def start(self) -> None:
        """Start them all."""
        for replica in self.all:
            await replica.service.start()

    def replace(self, at: int) -> None:
        """Crash a replica, and start another one in its place; whoever calls the service loses the connection."""
        self.all[at].process.crash()
        self.all[at] = replica = self._new()
        starting = asyncio.create_task(self._start(replica))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        self.break_calls()

    def break_calls(self) -> None:
        """End all calls to the service as lost connections do."""
        for channel in self._channels:
            channel.break_off(self.methods)

    async def _start(self, replica: Replica) -> None:
        """Start a replica; if that fails, its process ends and another one is started, as Kubernetes does."""
        try:
            await replica.service.start()
        except ConnectionError:
            await asyncio.sleep(0.3)
            if replica in self.all:
                self.replace(self.all.index(replica))

    def _new(self) -> Replica:
        process, server = Process(self.name), LocalServer()
        service = self._begin(process)
        server.bind([service])
        return Replica(process, service, server)


class World:
    """Everything that a life takes place in."""

    def __init__(
        self, loop: VirtualLoop, draw: random.Random, replicas: int, *, shards: int = 1, secret: str = ""
    ) -> None:
        self._loop = loop
        self._draw = draw
        self._server = _AnyReplica(self)
        self._schedulers = 0
        self._node_task_manager_settings = NodeTaskManagerSettings(node_task_manager_clean_seconds=600)
        self.disturbances = Disturbances(loop, draw)
        limits = self._node_task_manager_settings.limits()
        self.stores = AllStores(SystemClock(), limits, self.disturbances, shards=shards)
        self._secrets = {SECRET: secret}
        self.channels: list[LocalChannel] = []
        self.workers: dict[str, VirtualWorker] = {}
        """The present worker of each id."""
        self._crashes: dict[str, asyncio.Future[None]] = {}
        """What ends the present worker of each id."""
        self._addresses = {f"w{WORKERS - 1}:1": Address()} if draw.random() < 0.5 else {}
        """Where workers listen: in every second life, the last one is called."""

        def all_of(name: str, begin: Callable[[Process], Service]) -> Replicas:
            return Replicas(name, replicas, begin, self.channels)

        self.node_task_managers = all_of("node_task_manager", self._begin_node_task_manager)
        self.triggers = all_of("trigger", self._begin_trigger_service)
        self.schedulers = all_of("scheduler", self._begin_scheduler)
        self.registries = all_of("registry", self._begin_registry)
        self.accesses = all_of("access", self._begin_access)
        self.services = (self.registries, self.triggers, self.node_task_managers, self.schedulers, self.accesses)
        self.clients = {user_id: VirtualClient(self.channel(), user_id) for user_id in USERS}
        """Those of each user."""

    @property
    def client(self) -> Client:
        """The client of the first user."""
        return self.clients[USERS[0]]

    @property
    def seconds(self) -> float:
        """How long the life has lasted."""
        return self._loop.now_ns / 1e9

    def crash(self, replicas: Replicas) -> None:
        """Crash one replica."""
        replicas.replace(self._draw.randrange(len(replicas.all)))

    def freeze(self, replicas: Replicas, seconds: float) -> None:
        """Freeze one replica for a while."""
        process = self._draw.choice(replicas.all).process
        process.freeze()
        self._loop.call_later(seconds, process.thaw)

    def freeze_worker(self, worker_id: str, seconds: float) -> None:
        """Let nothing reach a worker for a while, or come from it."""
        address = self._addresses.get(f"{worker_id}:1")
        for channel in (self.workers[worker_id].channel, *(address.channels if address else ())):
            channel.gate.shut()
            self._loop.call_later(seconds, channel.gate.open)

    def crash_worker(self, worker_id: str) -> None:
        """End a worker as a killed process does: nothing of it arrives any more."""
        channel = self.workers[worker_id].channel
        channel.gate.shut()
        channel.break_off()
        if address := self._addresses.get(f"{worker_id}:1"):
            address.close()
        if not self._crashes[worker_id].done():
            self._crashes[worker_id].set_result(None)

    def lose_writes(self, seconds: float, service: str) -> None:
        """Restart the store of a service, or "" of all, in a while, as it is now; sometimes that of one shard alone."""
        shards = self.stores.shards
        lost = self._draw.sample(shards, 1) if service and self._draw.random() < 0.5 else shards
        self._loop.call_later(seconds, self.stores.snapshot(service, lost))

    @asynccontextmanager
    async def run(self, nodes: Iterable[Node[..., Any]]) -> AsyncIterator[None]:
        """Start everything, with workers that offer `nodes`."""
        async with AsyncExitStack() as stack:
            for replicas in self.services:
                await replicas.start()
            for at in range(WORKERS):
                await stack.enter_async_context(self._worker(f"w{at}", list(nodes)))
            for client in self.clients.values():
                await stack.enter_async_context(client)
            yield

    @asynccontextmanager
    async def _worker(self, worker_id: str, nodes: Sequence[Node[..., Any]]) -> AsyncIterator[None]:
        """Have a worker of this id; when it leaves, another one takes its place, as with Kubernetes."""
        leaving = False

        async def keep() -> None:
            while not leaving:
                self.workers[worker_id] = worker = self._begin_worker(worker_id, nodes)
                self._crashes[worker_id] = crash = self._loop.create_future()
                serving = asyncio.create_task(worker.serve())
                await asyncio.wait((serving, crash), return_when=asyncio.FIRST_COMPLETED)
                if crash.done():
                    # Whatever it would still say reaches nobody, and need not be waited for.
                    serving.cancel()
                elif isinstance(serving.exception(), WorkerError):
                    await asyncio.sleep(1)
                else:
                    serving.result()

        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            leaving = True
            self.workers[worker_id].stop()
            await keeping

    def _begin_worker(self, worker_id: str, nodes: Sequence[Node[..., Any]]) -> VirtualWorker:
        address = self._addresses.get(f"{worker_id}:1")
        if address:
            return CalledVirtualWorker(nodes, worker_id, self.channel(), address, secrets=self._secret)
        return VirtualWorker(nodes, worker_id, self.channel(), secrets=self._secret)

    async def _secret(self, name: str) -> str | None:
        return self._secrets.get(name)

    def any_access(self) -> Access:
        """Return some replica of the access service."""
        service = self._draw.choice(self.accesses.all).service
        assert isinstance(service, Access)
        return service

    def pick_server(self, method: str) -> LocalServer:
        """Return a replica's server for a call: any registry for a service that there is none of, as it will say."""
        replicas = next((each for each in self.services if method.startswith(each.methods)), self.registries)
        return self._draw.choice(replicas.all).server

    def _begin_scheduler(self, process: Process) -> Service:
        self._schedulers += 1
        stores = self.stores.for_scheduler(process, f"s{self._schedulers}", lambda: scheduler.publishes_ends)
        settings = SchedulerSettings(scheduler_lease_seconds=LEASE_S, scheduler_single_replica=False, doctor_seconds=40)
        scheduler = Scheduler(settings, stores=stores, open_channel=self._opener(process))
        self.disturbances.gaps.append((process, scheduler.store_lost))
        return scheduler

    def _begin_node_task_manager(self, process: Process) -> Service:
        def open_worker_channel(address: str, **_: Any) -> Any:
            channel = WorkerChannel(self._addresses[address], self._loop.engine)
            process.channels.append(channel)
            self.channels.append(channel)
            return channel

        return NodeTaskManager(
            self._node_task_manager_settings,
            stores=self.stores.for_node_task_manager(process),
            open_channel=self._opener(process),
            open_worker_channel=open_worker_channel,
        )

    def _begin_trigger_service(self, process: Process) -> Service:
        return TriggerService(TriggerSettings(trigger_poll_seconds=20), stores=self.stores.for_trigger_service(process))

    def _begin_access(self, process: Process) -> Service:
        settings = AccessSettings(
            service_token=SecretStr("a secret that all servers share"),
            quotas=f"SubmitTask={QUOTA}",
            access_session_seconds=WEEK_S,
            access_idle_seconds=WEEK_S,
        )
        return Access(settings, stores=self.stores.for_access(process))

    def _begin_registry(self, process: Process) -> Service:
        return Registry(RegistrySettings(), stores=self.stores.for_registry(process))

    def _opener(self, process: Process) -> Any:
        def open_channel(address: str = "", *, traced: bool = True) -> LocalChannel:
            process.channels.append(self.channel())
            return process.channels[-1]

        return open_channel

    def channel(self) -> LocalChannel:
        """Return a new channel to all services."""
        self.channels.append(LocalChannel(self._server, self._loop.engine))
        return self.channels[-1]


class _AnyReplica(LocalServer):
    """Hands each call to some replica of its service."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    async def serve(self, method: str, request: bytes | None, incoming: Pipe, outgoing: Pipe) -> Status:
        return await self._world.pick_server(method).serve(method, request, incoming, outgoing)
