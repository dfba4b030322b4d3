"""Watching cycles, even across lost connections."""

import asyncio
from contextlib import aclosing

import pytest

from tests.unit.client.fake_stack import FakeStack
from tests.waiting import until
from tradewind.api.scheduler.v1 import cycle_pb2
from tradewind.client import Client, NotFound, Unreachable, following


class Watch:
    """Collects what a watch reports, as `cycle status`."""

    def __init__(self, client: Client, *flow_ids: str) -> None:
        self.reported: list[str] = []
        self._task = asyncio.ensure_future(self._run(client, flow_ids))

    async def _run(self, client: Client, flow_ids: tuple[str, ...]) -> None:
        async with aclosing(client.watch_flows(*flow_ids)) as records:
            async for record in records:
                self.reported.append(f"{record.cycle} {record.status}")

    async def has(self, *reported: str) -> None:
        """Wait until exactly this has been reported."""
        await until(lambda: len(self.reported) >= len(reported), f"{reported} is reported, not only {self.reported}")
        assert self.reported == list(reported)

    async def stop(self) -> None:
        """Leave the watch."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def failed(self) -> BaseException | None:
        """Return the exception that ended the watch."""
        await asyncio.wait([self._task])
        return self._task.exception()


async def test_watch_yields_latest_cycle_and_every_change(client: Client, stack: FakeStack) -> None:
    scheduler = stack.scheduler
    await scheduler.begin("momentum")
    watch = Watch(client, "momentum")
    await watch.has("0 running")
    await scheduler.end("momentum", 0)
    await scheduler.begin("momentum")
    await watch.has("0 running", "0 completed", "1 running")
    await watch.stop()

    await until(lambda: scheduler.watchers == 0, "the stream is closed when the watch is left")


async def test_watch_catches_up_after_lost_connection(client: Client, stack: FakeStack) -> None:
    scheduler = stack.scheduler
    await scheduler.begin("momentum")
    watch = Watch(client, "momentum")
    await watch.has("0 running")
    await until(lambda: scheduler.watchers == 1, "the watch is there")

    await scheduler.break_watches()
    await until(lambda: scheduler.watchers == 0, "the watch is broken")
    await scheduler.end("momentum", 0)
    for cycle in (1, 2):
        await scheduler.begin("momentum")
        await scheduler.end("momentum", cycle)
    await scheduler.begin("momentum")
    await watch.has("0 running", "0 completed", "1 completed", "2 completed", "3 running")
    await scheduler.end("momentum", 3)
    await watch.has("0 running", "0 completed", "1 completed", "2 completed", "3 running", "3 completed")
    await watch.stop()


async def test_watch_yields_end_with_earlier_version(client: Client, stack: FakeStack) -> None:
    """A store that lost its last second reuses versions, so the end may have an earlier version than one reported."""
    scheduler = stack.scheduler
    record = await scheduler.begin("momentum")
    record.version = 5
    watch = Watch(client, "momentum")
    await watch.has("0 running")
    record.version = 2
    await scheduler.end("momentum", 0)
    await watch.has("0 running", "0 completed")
    await watch.stop()


async def test_watch_yields_another_end_of_a_run_whose_end_was_lost(client: Client, stack: FakeStack) -> None:
    scheduler = stack.scheduler
    record = await scheduler.begin("momentum")
    await scheduler.end("momentum", 0)
    watch = Watch(client, "momentum")
    await watch.has("0 completed")
    record.status = cycle_pb2.CYCLE_STATUS_RUNNING
    await scheduler.publish(record)
    record.status = cycle_pb2.CYCLE_STATUS_FAILED
    record.end_time.seconds += 1
    await scheduler.publish(record)
    await watch.has("0 completed", "0 failed")
    await watch.stop()


async def test_watch_yields_cycles_of_reregistered_flow(client: Client, stack: FakeStack) -> None:
    scheduler = stack.scheduler
    record = await scheduler.begin("momentum")
    await scheduler.end("momentum", 0)
    watch = Watch(client, "momentum")
    await watch.has("0 completed")
    record.run_id, record.status, record.version = "another", cycle_pb2.CYCLE_STATUS_RUNNING, 0
    await scheduler.end("momentum", 0)
    await watch.has("0 completed", "0 completed")
    await watch.stop()


async def test_watch_yields_no_duplicates_after_reconnecting(client: Client, stack: FakeStack) -> None:
    scheduler = stack.scheduler
    await scheduler.begin("momentum")
    await scheduler.end("momentum", 0)
    watch = Watch(client, "momentum")
    await watch.has("0 completed")
    for _ in range(3):
        await until(lambda: scheduler.watchers == 1, "the watch is there")
        await scheduler.break_watches(None)
        await until(lambda: scheduler.watchers == 0, "the watch is broken")
    await until(lambda: scheduler.watchers == 1, "the watch is back")
    await scheduler.begin("momentum")
    await watch.has("0 completed", "1 running")
    await watch.stop()


async def test_watch_reconnects_to_restarted_server(client: Client, stack: FakeStack) -> None:
    await stack.scheduler.begin("momentum")
    watch = Watch(client, "momentum")
    await watch.has("0 running")
    port = int(stack.address.rpartition(":")[2])

    await stack.stop()
    await stack.start(port)
    await stack.scheduler.end("momentum", 0)

    await watch.has("0 running", "0 completed")
    await watch.stop()


async def test_watch_ends_when_server_stays_away(stack: FakeStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PATIENCE", 0.2)
    await stack.scheduler.begin("momentum")
    async with Client(stack.address, patience=0) as client:
        watch = Watch(client, "momentum")
        await watch.has("0 running")
        await stack.stop()

        assert isinstance(await watch.failed(), Unreachable)


async def test_watch_that_was_connected_outlasts_a_lost_connection_without_patience(stack: FakeStack) -> None:
    scheduler = stack.scheduler
    await scheduler.begin("momentum")
    async with Client(stack.address, patience=0) as client:
        watch = Watch(client, "momentum")
        await watch.has("0 running")
        await until(lambda: scheduler.watchers == 1, "the watch is there")
        await scheduler.break_watches()
        await scheduler.end("momentum", 0)
        await watch.has("0 running", "0 completed")
        await watch.stop()


async def test_watch_fails_at_once_without_server_and_patience(stack: FakeStack) -> None:
    await stack.stop()
    async with Client(stack.address, patience=0) as client:
        assert isinstance(await Watch(client, "momentum").failed(), Unreachable)


async def test_watch_of_unknown_flow_raises_not_found(client: Client) -> None:
    assert isinstance(await Watch(client, "momentum", "nobody").failed(), NotFound)


async def test_watch_of_one_cycle_ends_with_it(client: Client, stack: FakeStack) -> None:
    await stack.scheduler.begin("momentum")
    await stack.scheduler.begin("momentum")
    await stack.scheduler.end("momentum", 0)

    assert [record.status async for record in client.cycle("momentum", 0).watch()] == ["completed"]


async def test_watch_of_one_run_ends_when_a_later_run_begins(client: Client, stack: FakeStack) -> None:
    """Its own end was missed, as while the connection was lost."""
    scheduler = stack.scheduler
    await scheduler.begin("momentum")
    async with aclosing(client.cycle("momentum", 0, 0).watch()) as states:
        assert (await anext(states)).status == "running"
        later = cycle_pb2.Cycle()
        later.CopyFrom(scheduler.cycles["momentum"][0])
        later.run, later.run_id = 1, "again"
        await until(lambda: scheduler.watchers == 1, "the watch is there")
        await scheduler.publish(later)

        assert [(record.run, record.status) async for record in states] == [(0, "running")]
