"""Watching flows, whichever replica their cycles run on."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import pytest

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.rpc.scheduler.errors import refused
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.scheduler.v1 import cycle_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.stores.keys import ACL, Keys

RUNNING, COMPLETED = cycle_pb2.CYCLE_STATUS_RUNNING, cycle_pb2.CYCLE_STATUS_COMPLETED


class Watcher:
    """Collects the events of a watch."""

    def __init__(self, client: Client, *flow_ids: str, cycle: int | None = None, after: Sequence[str] = ()) -> None:
        request = pb2.WatchFlowRequest(flow_ids=flow_ids, cycle=cycle, after_event_ids=after)
        self.call: Any = client.stub.WatchFlow(request)
        self.events: list[cycle_pb2.CycleEvent] = []
        self.error: grpc.aio.AioRpcError | None = None
        self.reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        try:
            async for response in self.call:
                self.events += response.events
        except grpc.aio.AioRpcError as error:
            self.error = error

    def seen(self, flow_id: str = "f") -> list[tuple[int, int]]:
        """Return the numbers and statuses of a flow's cycles, in the order in which the watch reported them."""
        return [(e.cycle.cycle, e.cycle.status) for e in self.events if e.cycle.flow_id == flow_id]

    async def close(self) -> None:
        self.call.cancel()
        await asyncio.gather(self.reading, return_exceptions=True)


@pytest.fixture
async def watch() -> AsyncIterator[Any]:
    watchers: list[Watcher] = []

    def begin(client: Client, *flow_ids: str, **options: Any) -> Watcher:
        watchers.append(Watcher(client, *flow_ids, **options))
        return watchers[-1]

    yield begin
    for watcher in watchers:
        await watcher.close()


async def test_watch_reports_an_end_after_the_store_lost_reported_states(
    start: Start, peers: Peers, embedded: RedisServer, watch: Any
) -> None:
    """The end may then have no later version than those states."""
    scheduler = await start(scheduler_check_in_seconds=1, scheduler_reconcile_seconds=1)
    await until(lambda: peers.triggers.listens("f"), "the scheduler listens")
    peers.node_tasks.automatic = False
    await scheduler.register("f", "a", "b", "c")
    await scheduler.run(wait=0)
    watcher = watch(scheduler, "f", cycle=0)
    for component_id in ("0", "1"):
        await peers.node_tasks.finish(("f", 0, 0), component_id)
    await until(lambda: watcher.events and watcher.events[-1].cycle.version >= 3, "both ends are reported")
    (node,) = embedded.nodes
    await embedded.on_node(node, "HDEL", Keys().run("f", 0, 0), "version", "component:0", "component:1")
    await embedded.on_node(node, "CLIENT", "KILL", "USER", ACL.name)
    await peers.node_tasks.finish(("f", 0, 0), "2")
    await scheduler.ended()
    await until(watcher.reading.done, "the watch has ended with the cycle")
    assert watcher.seen()[-1] == (0, COMPLETED)


async def test_watch_reports_the_latest_cycle_then_every_change(scheduler: Client, peers: Peers, watch: Any) -> None:
    await scheduler.register("f", "a", "b")
    await scheduler.run()
    watcher = watch(scheduler, "f")
    await until(lambda: watcher.seen() == [(0, COMPLETED)], "the latest cycle is reported")
    peers.node_tasks.automatic = False
    await scheduler.run(wait=0, inputs_json='{"a":1}')
    await peers.node_tasks.finish(("f", 1, 0), "0")
    await peers.node_tasks.finish(("f", 1, 0), "1")
    await until(lambda: watcher.seen()[-1] == (1, COMPLETED), "the end is reported")
    assert watcher.seen()[1] == (1, RUNNING)
    assert watcher.events[1].cycle.inputs_json == '{"a":1}'
    assert watcher.events[-1].cycle == await scheduler.cycle()
    assert len({event.event_id for event in watcher.events}) == len(watcher.events)


async def test_every_replica_reports_every_cycle(start: Start, scheduler: Client, watch: Any) -> None:
    other = await start()
    for flow_id in ("f", "g"):
        await scheduler.register(flow_id, "a")
        await scheduler.run(flow_id)
    watchers: list[Watcher] = [watch(replica, "f", "g") for replica in (scheduler, other)]
    for watcher in watchers:
        await until(lambda w=watcher: w.seen("f") and w.seen("g"), "the watch has begun")
    await asyncio.gather(*(scheduler.run(flow_id) for flow_id in ("f", "g") for _ in range(10)))
    everything = {(number, status) for number in range(11) for status in (RUNNING, COMPLETED)}
    for watcher in watchers:
        for flow_id in ("f", "g"):

            def complete(watcher: Watcher = watcher, flow_id: str = flow_id) -> bool:
                return {number for number, status in watcher.seen(flow_id) if status == COMPLETED} == set(range(11))

            await until(complete, f"all cycles of {flow_id} are reported")
            assert set(watcher.seen(flow_id)) <= everything


async def test_watch_resumes_after_the_given_event(scheduler: Client, peers: Peers, watch: Any) -> None:
    await scheduler.register("f", "a", keep_cycles=200)
    await scheduler.register("g", "a")
    peers.node_tasks.automatic = False
    for _ in range(2):
        await scheduler.run(wait=0)
    first = watch(scheduler, "f")
    await until(lambda: first.seen() == [(1, RUNNING)], "the latest cycle is reported")
    await peers.node_tasks.finish(("f", 1, 0))
    await until(lambda: first.seen()[-1] == (1, COMPLETED), "its end is reported")
    running, ended = (event.event_id for event in first.events)

    peers.node_tasks.automatic = True
    await asyncio.gather(*(scheduler.run() for _ in range(120)), scheduler.run("g"))
    later = [(number, COMPLETED) for number in range(2, 122)]
    for after, expected in ((running, [(1, COMPLETED), *later]), (ended, later)):
        again = watch(scheduler, "f", "g", after=[after])
        await until(lambda again=again: again.seen("g"), "the latest cycle of g is reported")
        await until(
            lambda again=again, expected=expected: len(again.seen()) >= len(expected),
            "everything since then is reported",
        )
        assert again.seen() == expected
        await scheduler.run()
        later.append((later[-1][0] + 1, COMPLETED))
        await until(lambda again=again: again.seen()[-1] == later[-1], "the next end is reported")


async def test_watch_after_an_unknown_event_reports_the_latest_cycle(scheduler: Client, watch: Any) -> None:
    await scheduler.register()
    await scheduler.run()
    watcher = watch(scheduler, "f", after=["f:57:0-2"])
    await until(lambda: watcher.seen() == [(0, COMPLETED)], "the latest cycle is reported")


async def test_watch_of_one_cycle_ends_with_that_cycle(scheduler: Client, peers: Peers, watch: Any) -> None:
    await scheduler.register()
    await scheduler.run()
    peers.node_tasks.automatic = False
    watcher = watch(scheduler, "f", cycle=1)
    await scheduler.run(wait=0)
    await scheduler.run(wait=0)
    await until(lambda: watcher.events, "the cycle is reported")
    await peers.node_tasks.finish(("f", 1, 0))
    await asyncio.wait_for(watcher.reading, 30)
    assert watcher.error is None
    assert watcher.seen() == [(1, RUNNING), (1, COMPLETED)]
    late = watch(scheduler, "f", cycle=0)
    await asyncio.wait_for(late.reading, 30)
    assert late.seen() == [(0, COMPLETED)]


async def test_watch_of_an_expired_cycle_is_refused(start: Start, peers: Peers, watch: Any) -> None:
    scheduler = await start(scheduler_settle_seconds=0)
    await until(lambda: peers.triggers.listens("f"), "the scheduler listens")
    await scheduler.register(keep_cycles=1)
    for _ in range(2):
        await scheduler.run()
    watcher = watch(scheduler, "f", cycle=0)
    await asyncio.wait_for(watcher.reading, 30)
    assert watcher.error is not None
    assert 'no cycle "f:0"' in str(watcher.error)


async def test_a_watch_ends_when_its_flow_is_deleted(scheduler: Client, watch: Any) -> None:
    await scheduler.register()
    await scheduler.run()
    watcher = watch(scheduler, "f")
    await until(lambda: watcher.events, "the watch has begun")
    request = pb2.DeleteFlowRequest(flow_id="f")
    request.wait.FromSeconds(10)
    await scheduler.stub.DeleteFlow(request)
    await asyncio.wait_for(watcher.reading, 30)
    assert watcher.error is None


async def test_watch_of_several_flows_continues_with_a_flow_registered_again(scheduler: Client, watch: Any) -> None:
    await scheduler.register("g")
    await scheduler.register()
    await scheduler.run()
    watcher = watch(scheduler, "f", "g")
    await until(lambda: watcher.seen() == [(0, COMPLETED)], "the watch has begun")
    request = pb2.DeleteFlowRequest(flow_id="f")
    request.wait.FromSeconds(10)
    await scheduler.stub.DeleteFlow(request)
    await scheduler.register()
    await scheduler.run()
    await until(lambda: len(watcher.seen()) == 3, "its cycle is reported")
    assert watcher.seen()[1:] == [(0, RUNNING), (0, COMPLETED)]
    assert watcher.events[-1].cycle == await scheduler.cycle()


async def test_invalid_watch_requests_are_refused(scheduler: Client) -> None:
    async def first(request: pb2.WatchFlowRequest) -> object:
        return await anext(aiter(scheduler.stub.WatchFlow(request)))

    await scheduler.register()
    unknown = pb2.WatchFlowRequest(flow_ids=["f", "nothing"])
    await refused(first(unknown), grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND")
    await refused(first(pb2.WatchFlowRequest()), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    bad = pb2.WatchFlowRequest(flow_ids=["no good"])
    error = await refused(first(bad), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert error.violations[0][0] == "flow_ids[0]"
    after = ["f:1:0-1", "f:2:0-1", "g:1:0-1", "f:1:0", "1-1"]
    bad = pb2.WatchFlowRequest(flow_ids=["f"], cycle=1, after_event_ids=after)
    error = await refused(first(bad), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert [path for path, _ in error.violations] == [
        "after_event_ids",
        *(f"after_event_ids[{at}]" for at in range(1, 5)),
    ]


async def test_shutdown_ends_watches_and_waits(start: Start, peers: Peers, watch: Any) -> None:
    scheduler = await start()
    await scheduler.register()
    await scheduler.run()
    peers.node_tasks.automatic = False
    watcher = watch(scheduler, "f")
    await until(lambda: watcher.events, "the watch has begun")
    waiting = asyncio.ensure_future(scheduler.run(wait=60))
    await until(lambda: ("f", 1, 0) in peers.node_tasks.runs, "the cycle runs")
    request = pb2.GetCycleRequest(flow_id="f", cycle=1)
    request.wait.FromSeconds(60)
    awaited = asyncio.ensure_future(scheduler.stub.GetCycle(request))
    waits = scheduler.service._await_ends._waiters._waits
    await until(lambda: sum(map(len, waits.values())) == 2, "both wait for its end")
    await scheduler.server.stop()
    for each in (waiting, awaited):
        await refused(each, grpc.StatusCode.UNAVAILABLE, "DRAINING")
    await asyncio.wait_for(watcher.reading, 30)
    assert watcher.error is not None
    assert watcher.error.code() is grpc.StatusCode.UNAVAILABLE


async def test_wait_that_begins_during_shutdown_ends_at_once(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register()
    await scheduler.run(wait=0)
    await scheduler.service.drain()
    request = pb2.GetCycleRequest(flow_id="f", cycle=0)
    request.wait.FromSeconds(60)
    await refused(scheduler.stub.GetCycle(request, timeout=5), grpc.StatusCode.UNAVAILABLE, "DRAINING")
