"""What one cycle of a one-node flow costs the scheduler and its store, without a real node task manager.

Run `python -m benchmarks.scheduler_runs [flows] [rounds]`. The scheduler runs in a process of its own over the embedded
store; a node task manager that completes everything at once runs in another. CPU time is what the system accounts to
the scheduler's process, and what the store itself reports.
"""

import asyncio
import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import uvloop

from benchmarks.measure import cpu_seconds
from tradewind.api.node_task_manager.v1 import component_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as ntm_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as ntm_grpc
from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2_grpc as pb2_grpc
from tradewind.api.trigger.v1 import trigger_service_pb2 as trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2_grpc as trigger_grpc
from tradewind.scheduler.app import Scheduler
from tradewind.scheduler.settings import SchedulerSettings
from tradewind.scheduler.stores.keys import ACL
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.logs import configure_logging
from tradewind.server.partitions import partition_of
from tradewind.server.redis.acl import ADMIN
from tradewind.server.redis.client import connect
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.server.settings import load_settings

Context = grpc.aio.ServicerContext[Any, Any]
Pipe = multiprocessing.connection.Connection


class InstantNodeTaskManager(ntm_grpc.NodeTaskManagerServiceServicer):
    """Accepts everything and completes it at once."""

    def __init__(self) -> None:
        self._events: list[component_pb2.Event] = []
        self._news = asyncio.Event()

    async def StreamSubmissions(  # noqa: N802
        self, request_iterator: AsyncIterator[ntm_pb2.StreamSubmissionsRequest], context: Context
    ) -> AsyncIterator[ntm_pb2.StreamSubmissionsResponse]:
        async for message in request_iterator:
            response = self._submitted(message.request)
            yield ntm_pb2.StreamSubmissionsResponse(number=message.number, response=response)

    def _submitted(self, request: ntm_pb2.SubmitComponentsRequest) -> ntm_pb2.SubmitComponentsResponse:
        response = ntm_pb2.SubmitComponentsResponse()
        for run in request.runs:
            response.results.add(outcome=component_pb2.SUBMIT_OUTCOME_ACCEPTED)
            for part in run.components:
                event = component_pb2.Event(event_id="1", partition=partition_of(run.flow_id))
                component = event.component_finished.component
                component.flow_id, component.cycle, component.run = run.flow_id, run.cycle, run.run
                component.run_id, component.component_id = run.run_id, part.component_id
                component.counts.completed = component.node_count = component.sinks_completed = 1
                self._events.append(event)
        self._news.set()
        return response

    async def ReceiveEvents(  # noqa: N802
        self, request_iterator: AsyncIterator[ntm_pb2.ReceiveEventsRequest], context: Context
    ) -> AsyncIterator[ntm_pb2.ReceiveEventsResponse]:
        async def drop() -> None:
            async for _ in request_iterator:
                pass

        dropping = asyncio.ensure_future(drop())
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                events, self._events = self._events, []
                for first in range(0, len(events), 500):
                    yield ntm_pb2.ReceiveEventsResponse(events=events[first : first + 500])
        finally:
            dropping.cancel()


class NoListeners(trigger_grpc.TriggerServiceServicer):
    """The part of the trigger service that a scheduler calls while no flow is started."""

    async def CountListeners(  # noqa: N802
        self, request: trigger_pb2.CountListenersRequest, context: Context
    ) -> trigger_pb2.CountListenersResponse:
        return trigger_pb2.CountListenersResponse()


def serve_peers(pipe: Pipe) -> None:
    """Run the node task manager and the trigger service in this process; send their port, end on any message."""

    async def serve() -> None:
        server = grpc.aio.server()
        servicer = InstantNodeTaskManager()  # type: ignore[abstract]
        ntm_grpc.add_NodeTaskManagerServiceServicer_to_server(servicer, server)
        trigger_grpc.add_TriggerServiceServicer_to_server(NoListeners(), server)  # type: ignore[abstract]
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        pipe.send(port)
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        await server.stop(0)

    uvloop.run(serve())


def serve_scheduler(pipe: Pipe, store_url: str, peers: str) -> None:
    """Run the scheduler in this process; send its port, end on any message."""

    configure_logging("error")

    async def serve() -> None:
        settings = load_settings(
            SchedulerSettings,
            store_url=store_url,
            node_task_manager_address=peers,
            trigger_address=peers,
            registry_address="127.0.0.1:1",
        )
        server = Server([Scheduler(settings)], drain_s=1)
        await server.start()
        pipe.send(server.port)
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        await server.stop()

    if os.environ.get("SCHEDULER_PROFILE"):
        import cProfile

        profile = cProfile.Profile()
        profile.enable()
        uvloop.run(serve())
        profile.disable()
        profile.dump_stats(os.environ["SCHEDULER_PROFILE"])
    else:
        uvloop.run(serve())


async def measure(flows: int, rounds: int, store: EmbeddedStore, scheduler: Any, port: int) -> None:
    """Register flows, run them all in bulk and then with one call each, and print what a cycle costs."""
    channel = open_channel(f"127.0.0.1:{port}")
    stub = pb2_grpc.SchedulerServiceStub(channel)
    admin = connect(store.url_for(ADMIN))
    spec = flow_pb2.FlowSpec(interval="0", nodes=[flow_pb2.NodeSpec(id="n", type="noop")])

    async def store_seconds() -> float:
        info = await admin.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    async def lap(what: str, work: Any) -> None:
        before = cpu_seconds([scheduler.pid]), await store_seconds(), time.perf_counter()
        cycles = await work
        after = cpu_seconds([scheduler.pid]), await store_seconds(), time.perf_counter()
        mine, store_s, wall = (b - a for a, b in zip(before, after, strict=True))
        print(
            f"{what:<22} {cycles / wall:8.0f} cycles/s   scheduler {mine / cycles * 1e6:6.1f} us/cycle"
            f"   store {store_s / cycles * 1e6:6.1f} us/cycle"
        )

    async def bulk() -> int:
        total = 0
        for _ in range(rounds):
            request = pb2.RunFlowsRequest(items=[pb2.RunFlowItem(flow_id=f"flow-{at}") for at in range(flows)])
            request.wait.FromSeconds(60)
            response = await stub.RunFlows(request, timeout=90)
            ended = sum(each.cycle.status == cycle_pb2.CYCLE_STATUS_COMPLETED for each in response.results)
            if ended != flows:
                raise RuntimeError(f"{ended} of {flows} cycles completed")
            total += ended
        return total

    async def singly(calls: int, at_once: int = 50) -> int:
        numbers = iter(range(calls))

        async def one_after_another() -> None:
            for number in numbers:
                request = pb2.RunFlowRequest(flow_id=f"flow-{number % flows}")
                request.wait.FromSeconds(60)
                await stub.RunFlow(request, timeout=90)

        await asyncio.gather(*(one_after_another() for _ in range(at_once)))
        return calls

    async def register() -> int:
        for first in range(0, flows, 50):
            await asyncio.gather(
                *(
                    stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id=f"flow-{at}", spec=spec), timeout=30)
                    for at in range(first, min(first + 50, flows))
                )
            )
        return flows

    await lap("RegisterFlow", register())
    await lap("RunFlows (first)", bulk())
    await lap("RunFlows", bulk())
    await lap("RunFlow, 50 in flight", singly(3 * flows))
    await admin.end()
    await channel.close()


async def main(flows: int, rounds: int) -> None:
    """Start everything, measure, stop everything."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="tw-") as directory:
        store = EmbeddedStore(Path(directory), acl_users=[ACL])
        await store.start()
        started: list[tuple[Any, Pipe]] = []

        def start(target: Any, *args: Any) -> tuple[Any, int]:
            mine, theirs = context.Pipe()
            process = context.Process(target=target, args=(theirs, *args))
            process.start()
            started.append((process, mine))
            return process, mine.recv()

        try:
            _, peers = start(serve_peers)
            scheduler, port = start(serve_scheduler, store.url_for(ACL.name), f"127.0.0.1:{peers}")
            await measure(flows, rounds, store, scheduler, port)
        finally:
            for process, pipe in reversed(started):
                pipe.send("end")
                process.join()
            await store.stop()


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:]]
    uvloop.run(main(*(numbers or [1000, 10])))
