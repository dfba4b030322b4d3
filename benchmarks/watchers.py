"""How soon one node task manager tells many watchers about tasks that end and about notifications.

    python -m benchmarks.watchers [--watchers 500] [--rounds 10]

Half of the watchers follow ten tasks with WatchTask, half follow the notifications of one user. In each round the ten
tasks end in one call; the time measured is from that call until the last watcher of each kind has been told. The server
and the watchers share one process, so half of the work is the watchers' own.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from benchmarks.store import Store
from tradewind.api.node_task_manager.v1 import batch_pb2, notification_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceStub
from tradewind.node_task_manager.app import NodeTaskManager
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.logs import quieten_logging
from tradewind.server.redis.client import Client, connect

if TYPE_CHECKING:
    from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceAsyncStub

TASKS = 10
_USER = "ann"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watchers", description=__doc__)
    parser.add_argument("--watchers", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    quieten_logging("warning")
    by_kind, connections = asyncio.run(measure(options.watchers, options.rounds))
    for kind, times in by_kind.items():
        median, slowest = statistics.median(times) * 1000, max(times) * 1000
        print(f"{options.watchers // 2} watchers of {kind}: all told after {median:.0f} ms, at most {slowest:.0f} ms")
    print(f"connections that subscribe: {connections}")


async def measure(watchers: int, rounds: int) -> tuple[dict[str, list[float]], int]:
    """Return, by kind, the seconds until all watchers were told in each round, and how many connections subscribe."""
    times: dict[str, list[float]] = {"tasks": [], "notifications": []}
    with Store() as store:
        settings = NodeTaskManagerSettings(store_url=store.url, registry_address="none", port=0)
        server = Server([NodeTaskManager(settings)])
        await server.start()
        channel, admin = open_channel(server.address), connect(store.url)
        try:
            stub = NodeTaskManagerServiceStub(channel)
            for _ in range(rounds):
                for kind, seconds in (await _round(stub, watchers // 2)).items():
                    times[kind].append(seconds)
            return times, await _subscribers(admin)
        finally:
            await admin.end()
            await channel.close()
            await server.stop()


async def _round(stub: NodeTaskManagerServiceAsyncStub, count: int) -> dict[str, float]:
    tasks = [await _submit(stub) for _ in range(TASKS)]
    claim = pb2.ClaimNodeTasksRequest(worker_id="w", node_types=["noop"], limit=TASKS)
    given = (await stub.ClaimNodeTasks(claim)).assignments
    ready = [asyncio.Event() for _ in range(2 * count)]
    by_task = [asyncio.create_task(_watch_task(stub, tasks[at % TASKS], ready[at].set)) for at in range(count)]
    by_user = [asyncio.create_task(_watch_user(stub, ready[count + at].set)) for at in range(count)]
    for each in ready:
        await each.wait()
    done = [work_pb2.NodeTaskCompletion(token=each.token) for each in given]
    began = time.perf_counter()
    await stub.CompleteNodeTasks(pb2.CompleteNodeTasksRequest(worker_id="w", completions=done))

    async def all_received(watching: list[asyncio.Task[None]]) -> float:
        await asyncio.gather(*watching)
        return time.perf_counter() - began

    task_delays, notification_delays = await asyncio.gather(all_received(by_task), all_received(by_user))
    return {"tasks": task_delays, "notifications": notification_delays}


async def _submit(stub: NodeTaskManagerServiceAsyncStub) -> str:
    answer = await stub.SubmitTask(batch_pb2.SubmitTaskRequest(user_id=_USER, node_type="noop"))
    return answer.task.node_task_id


async def _watch_task(stub: NodeTaskManagerServiceAsyncStub, task_id: str, ready: Callable[[], object]) -> None:
    async for _ in stub.WatchTask(batch_pb2.WatchTaskRequest(task_id=task_id, user_id=_USER)):
        ready()


async def _watch_user(stub: NodeTaskManagerServiceAsyncStub, ready: Callable[[], object]) -> None:
    """Follow the notifications until each of the tasks has been reported."""
    call = stub.WatchNotifications(notification_pb2.WatchNotificationsRequest(user_id=_USER))
    seen = 0
    async for response in call:
        ready()
        seen += len(response.notifications)
        if seen == TASKS:
            call.cancel()
            return


async def _subscribers(admin: Client) -> int:
    listed: Awaitable[bytes] = admin.execute_command("CLIENT", "LIST", "TYPE", "pubsub")
    return len((await listed).splitlines())


if __name__ == "__main__":
    main()
