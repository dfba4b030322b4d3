"""Steady load by everything that clients do: scheduled flows, runs, bulk runs, tasks, batches, watchers, sessions."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import grpc

from benchmarks.soak.nodes import double, fail, number
from benchmarks.soak.stack import SECRET, SoakStack
from tradewind.api.node_task_manager.v1 import notification_pb2, work_pb2
from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceStub
from tradewind.api.registry.v1 import registry_service_pb2, worker_pb2
from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from tradewind.api.scheduler.v1 import scheduler_service_pb2
from tradewind.api.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tradewind.client import Client, Role, TaskFailed, TradewindError
from tradewind.flow import Flow
from tradewind.grpc_engine.bearer import with_token
from tradewind.server.side_tasks import SideTasks
from tradewind.worker import Worker

EVERY_S = {
    "run": 0.2,
    "run_many": 2.0,
    "task": 0.5,
    "batch": 5.0,
    "failing_task": 5.0,
    "watch": 1.0,
    "receive_notification": 5.0,
    "join_and_leave": 5.0,
    "log_in": 2.0,
}
"""How often each kind of load begins, in seconds, whether or not the previous one has ended."""

_FLOWS = [f"flow{place}" for place in range(10)]
_READY_S = 60.0
_WAIT_S = 60.0


class Load:
    """A context that keeps up the load; `done` counts successes, `errors` failures, `seconds` times single runs."""

    def __init__(self, stack: SoakStack) -> None:
        self._stack = stack
        self._repeating = SideTasks()
        self._in_flight = SideTasks()
        self._client: Client
        self._tokens: dict[str, str] = {}
        self._guests = itertools.count()
        self.done: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.seconds: list[tuple[float, float]] = []
        """When each single run began, by the monotonic clock, and how many seconds it took."""

    async def __aenter__(self) -> Load:
        async with Client(addresses=self._stack.addresses, token=SECRET, patience=_READY_S) as server:
            await server.wait_ready(_READY_S)
            for name, role in (("ann", Role.USER), ("pool", Role.WORKER)):
                self._tokens[name] = (await server.create_token(name, role=role)).token
            self._stack.start_worker(self._tokens["pool"])
            deadline = time.monotonic() + _READY_S
            while not [worker async for worker in server.list_workers()]:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the worker did not come:\n{self._stack.log_tail()}")
                await asyncio.sleep(0.1)
        self._client = Client(addresses=self._stack.addresses, token=self._tokens["ann"])
        await self._client.register_flow("single", _flow("single", "1h"))
        for name in _FLOWS:
            await self._client.register_flow(name, _flow(name, "1s"))
            await self._client.start_flow(name)
        for kind, every_s in EVERY_S.items():
            self._repeating.begin(self._every(every_s, kind))
        self._repeating.begin(self._record("silent", self._hold_unread_streams))
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._repeating.end()
        await self._in_flight.end()
        await self._client.close()

    async def _every(self, every_s: float, name: str) -> None:
        action: Callable[[], Awaitable[None]] = getattr(self, f"_{name}")
        while True:
            self._in_flight.begin(self._record(name, action))
            await asyncio.sleep(every_s)

    async def _record(self, name: str, action: Callable[[], Awaitable[None]]) -> None:
        try:
            await action()
        except (TradewindError, grpc.aio.AioRpcError, TimeoutError, AssertionError) as error:
            self.errors[f"{name}: {type(error).__name__}: {error}"[:300]] += 1
        else:
            self.done[name] += 1

    async def _run(self) -> None:
        started_s = time.monotonic()
        cycle = await self._client.run_flow("single", {"value": 3}, wait=5)
        assert await cycle.result(_WAIT_S) == {"last": {"output": 12}}
        self.seconds.append((started_s, time.monotonic() - started_s))

    async def _run_many(self) -> None:
        for cycle in await self._client.run_flows(["single"] * 20):
            if isinstance(cycle, TradewindError):
                raise cycle

    async def _task(self) -> None:
        task = await self._client.submit_task("soak.number", {"value": 7})
        assert await task.result(_WAIT_S) == {"output": 7}

    async def _batch(self) -> None:
        batch = await self._client.submit_batch("soak.double", [{"value": value} for value in range(20)])
        assert len(await batch.result(_WAIT_S)) == 20

    async def _failing_task(self) -> None:
        task = await self._client.submit_task("soak.fail", {"value": 7})
        with suppress(TaskFailed):
            await task.result(_WAIT_S)

    async def _watch(self) -> None:
        """Follow all flows until some of their cycles have changed."""
        async with asyncio.timeout(_WAIT_S), aclosing(self._client.watch_flows(*_FLOWS)) as changes:
            seen = 0
            async for _ in changes:
                seen += 1
                if seen == 2 * len(_FLOWS):
                    return

    async def _receive_notification(self) -> None:
        """Follow the notifications until the next task fails."""
        async with asyncio.timeout(_WAIT_S), aclosing(self._client.watch_notifications()) as notifications:
            async for _ in notifications:
                return

    async def _join_and_leave(self) -> None:
        """Be a worker for a while."""
        async with Worker(
            [number, double, fail],
            address=self._stack.address("node_task_manager"),
            registry_address=self._stack.address("registry"),
            scheduler_address=self._stack.address("scheduler"),
            worker_id=f"guest{next(self._guests) % 4}",
            token=self._tokens["pool"],
            process_capacity=0,
            grace=5,
        ):
            await asyncio.sleep(2)

    async def _log_in(self) -> None:
        session = await self._client.log_in(label="soak")
        async with Client(addresses=self._stack.addresses, token=session.token) as visitor:
            assert (await visitor.who_am_i()).user_id == "ann"
            await visitor.log_out()

    async def _hold_unread_streams(self) -> None:
        """Hold streams open that are never read; the worker among them sends many messages that want answers."""
        scheduler = with_token(grpc.aio.insecure_channel(self._stack.address("scheduler")), self._tokens["ann"])
        manager = grpc.aio.insecure_channel(self._stack.address("node_task_manager"))
        user, worker = (NodeTaskManagerServiceStub(with_token(manager, self._tokens[name])) for name in ("ann", "pool"))
        request = scheduler_service_pb2.WatchFlowRequest(flow_ids=[*_FLOWS, "single"])
        silent: list[Any] = [
            SchedulerServiceStub(scheduler).WatchFlow(request),
            user.WatchNotifications(notification_pb2.WatchNotificationsRequest(user_id="ann")),
        ]
        work = worker.Work()
        registry = grpc.aio.insecure_channel(self._stack.address("registry"))
        silent_worker = worker_pb2.Worker(worker_id="silent", incarnation="none", node_types=["soak.none"], capacity=1)
        hello = work_pb2.WorkerHello(worker_id="silent", incarnation="none", node_types=["soak.none"], capacity=1)
        tokens = [f"0~task:none{place}~1~none" for place in range(100)]
        try:
            await RegistryServiceStub(with_token(registry, self._tokens["pool"])).RegisterWorker(
                registry_service_pb2.RegisterWorkerRequest(worker=silent_worker)
            )
            await work.write(work_pb2.WorkRequest(sequence=1, hello=hello))
            while True:
                await asyncio.sleep(1)
                if work.done() or any(call.done() for call in silent):
                    raise AssertionError("a stream that nobody reads was ended")
                await work.write(work_pb2.WorkRequest(sequence=2, renew=True, held_tokens=tokens))
                self.done["silent"] += 1
        finally:
            for call in (work, *silent):
                call.cancel()
            for channel in (scheduler, manager, registry):
                await channel.close()


def _flow(name: str, interval: str) -> Flow:
    """Return three nodes in sequence; few cycles are kept."""
    flow = Flow(name, interval, keep_cycles=20, overlap="allow")
    first, middle, last = (
        flow.node("first", "soak.number"),
        flow.node("middle", "soak.double"),
        flow.node("last", "soak.double"),
    )
    first["output"] >> middle["value"]
    middle["output"] >> last["value"]
    return flow
