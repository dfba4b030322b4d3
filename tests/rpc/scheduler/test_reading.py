"""Reading cycles, cycles with all their details, and logs."""

import asyncio
import json

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.no_writes import REFUSALS, refusing_writes
from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.rpc.scheduler.errors import refused
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2


async def test_cycles_are_listed_newest_first_filtered_and_paged(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    for _ in range(6):
        await scheduler.run()
    peers.node_tasks.automatic = False
    await scheduler.run(wait=0)
    numbers: list[int] = []
    token = ""
    while len(numbers) == 0 or token:
        page = await scheduler.stub.ListCycles(pb2.ListCyclesRequest(flow_id="f", page_size=3, page_token=token))
        numbers += [cycle.cycle for cycle in page.cycles]
        token = page.next_page_token
    assert numbers == [6, 5, 4, 3, 2, 1, 0]
    running = pb2.ListCyclesRequest(flow_id="f", statuses=[cycle_pb2.CYCLE_STATUS_RUNNING])
    assert [cycle.cycle for cycle in (await scheduler.stub.ListCycles(running)).cycles] == [6]
    middle = (await scheduler.cycle(cycle=3)).start_time
    late = await scheduler.stub.ListCycles(pb2.ListCyclesRequest(flow_id="f", started_after=middle))
    early = await scheduler.stub.ListCycles(pb2.ListCyclesRequest(flow_id="f", started_before=middle))
    assert len(late.cycles) + len(early.cycles) == 7


async def test_page_token_of_another_list_is_named_as_the_fault_of_a_description(scheduler: Client) -> None:
    await scheduler.register()
    await scheduler.run()
    call = scheduler.stub.DescribeCycle(pb2.DescribeCycleRequest(flow_id="f", page_token="zzz"))
    refusal = await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert [path for path, _ in refusal.violations] == ["page_token"]


async def test_page_of_cycles_with_large_inputs_fits_into_one_message(scheduler: Client) -> None:
    await scheduler.register()
    for _ in range(6):
        await scheduler.run(inputs_json=json.dumps({"text": "x" * 1_000_000}))
    numbers: list[int] = []
    token = ""
    while not numbers or token:
        page = await scheduler.stub.ListCycles(pb2.ListCyclesRequest(flow_id="f", page_token=token))
        numbers += [cycle.cycle for cycle in page.cycles]
        token = page.next_page_token
    assert numbers == [5, 4, 3, 2, 1, 0]


async def test_every_replica_lets_callers_wait_for_the_end_of_a_cycle(
    start: Start, scheduler: Client, peers: Peers
) -> None:
    other = await start()
    await scheduler.register("f", "a", "b", edges="a>b")
    peers.node_tasks.automatic = False
    await scheduler.run(wait=0)
    output = node_task_pb2.Output(handle="out", value_json="42")
    peers.node_tasks.nodes["f", 0, 0] = [node_task_pb2.NodeTask(node_task_id="f:0:0:b", node_id="b", outputs=[output])]
    request = pb2.GetCycleRequest(flow_id="f", cycle=0, include_outputs=True)
    request.wait.FromMilliseconds(10)
    early = await scheduler.stub.GetCycle(request)
    assert early.cycle.status == cycle_pb2.CYCLE_STATUS_RUNNING

    request.wait.FromSeconds(30)
    waiting = [asyncio.ensure_future(each.stub.GetCycle(request)) for each in (scheduler, other)]
    await asyncio.sleep(0.2)
    assert not any(each.done() for each in waiting)
    await peers.node_tasks.finish(("f", 0, 0))
    for response in await asyncio.wait_for(asyncio.gather(*waiting), 4):
        assert response.cycle.status == cycle_pb2.CYCLE_STATUS_COMPLETED
        assert [(each.node_id, list(each.outputs)) for each in response.outputs] == [("b", [output])]
    assert await asyncio.wait_for(scheduler.stub.GetCycle(request), 4) == await waiting[0]

    request.wait.FromSeconds(3601)
    await refused(scheduler.stub.GetCycle(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")


async def test_ended_cycles_beyond_keep_cycles_are_removed(start: Start, peers: Peers) -> None:
    scheduler = await start(scheduler_settle_seconds=0)
    await until(lambda: peers.triggers.listens("f"), "the scheduler listens")
    await scheduler.register("f", keep_cycles=2)
    for _ in range(5):
        await scheduler.run()
    page = await scheduler.stub.ListCycles(pb2.ListCyclesRequest(flow_id="f"))
    assert [cycle.cycle for cycle in page.cycles] == [4, 3]
    refusal = await refused(scheduler.cycle(cycle=0), grpc.StatusCode.NOT_FOUND, "CYCLE_NOT_FOUND")
    assert "keep_cycles and keep_for" in refusal.message


async def test_a_cycle_is_found_by_number_and_run(scheduler: Client) -> None:
    await scheduler.register()
    refusal = await refused(scheduler.cycle(), grpc.StatusCode.NOT_FOUND, "CYCLE_NOT_FOUND")
    assert "has had none yet" in refusal.message
    await scheduler.run()
    second = await scheduler.run()
    assert await scheduler.cycle() == second
    assert await scheduler.cycle(cycle=1) == second
    assert await scheduler.cycle(cycle=1, run=0) == second
    absent = [(9, None, "the latest is 1"), (-1, None, "the first was 0"), (1, 1, 'no cycle "f:1:1"')]
    for cycle, run, why in [*absent, (None, 1, 'no cycle "f:1:1"')]:
        missing = scheduler.cycle(cycle=cycle, run=run)
        refusal = await refused(missing, grpc.StatusCode.NOT_FOUND, "CYCLE_NOT_FOUND")
        assert why in refusal.message


def tasks(*statuses: int) -> list[node_task_pb2.NodeTask]:
    return [node_task_pb2.NodeTask(node_id=f"n{at}", status=status) for at, status in enumerate(statuses)]  # type: ignore[arg-type]


@pytest.fixture
def lines() -> list[node_task_pb2.NodeLog]:
    """Lines of a node: the first before, the others after all lines of the scheduler."""
    stamps = [Timestamp(seconds=1), Timestamp(seconds=4_000_000_000), Timestamp(seconds=4_000_000_001)]
    levels = ["DEBUG", "WARNING", "shouting"]
    return [
        node_task_pb2.NodeLog(
            log_id=f"l{at}", node_id="n0", level=level, source="node", message=f"line {at}", created_at=stamp
        )
        for at, (level, stamp) in enumerate(zip(levels, stamps, strict=True))
    ]


async def test_description_combines_cycle_nodes_statistics_and_logs(
    scheduler: Client, peers: Peers, lines: list[node_task_pb2.NodeLog]
) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", *(f"n{at}" for at in range(10)), edges="n0>n1")
    cycle = await scheduler.run(wait=0)
    status = node_task_pb2.NodeTaskStatus
    peers.node_tasks.nodes["f", 0, 0] = tasks(
        status.NODE_TASK_STATUS_REGISTERED,
        status.NODE_TASK_STATUS_PENDING,
        status.NODE_TASK_STATUS_RUNNING,
        status.NODE_TASK_STATUS_RUNNING,
        status.NODE_TASK_STATUS_COMPLETED,
        status.NODE_TASK_STATUS_FAILED,
        status.NODE_TASK_STATUS_TERMINATED,
        status.NODE_TASK_STATUS_SKIPPED,
        status.NODE_TASK_STATUS_SUSPENDED,
    )
    peers.node_tasks.logs["f", 0] = lines
    request = pb2.DescribeCycleRequest(flow_id="f", page_size=3)
    found = await scheduler.stub.DescribeCycle(request)
    assert found.cycle == cycle
    assert found.flow_status == flow_pb2.FLOW_STATUS_REGISTERED
    assert [node.node_id for node in found.nodes] == ["n0", "n1", "n2"]
    numbers = found.statistics
    assert (numbers.total_nodes, numbers.registered_nodes) == (10, 2)
    assert (numbers.pending_nodes, numbers.running_nodes) == (1, 2)
    assert (numbers.completed_nodes, numbers.error_nodes) == (1, 1)
    assert (numbers.terminated_nodes, numbers.skipped_nodes, numbers.suspended_nodes) == (1, 1, 1)
    assert [line.message for line in found.logs] == ["line 0", "Starting cycle 0", "line 1", "line 2"]
    node_line, own_line, *_, odd = found.logs
    assert (node_line.source, node_line.node_id) == (cycle_pb2.LOG_SOURCE_NODE, "n0")
    assert (own_line.source, own_line.node_id) == (cycle_pb2.LOG_SOURCE_SCHEDULER, "")
    assert odd.level == cycle_pb2.LOG_LEVEL_INFO
    request.page_token = found.next_page_token
    second = await scheduler.stub.DescribeCycle(request)
    assert [node.node_id for node in second.nodes] == ["n3", "n4", "n5"]
    assert not second.HasField("statistics")
    assert not second.logs


async def test_statistics_of_an_ended_cycle_need_no_node_tasks(scheduler: Client) -> None:
    await scheduler.register("f", "a", "b")
    await scheduler.run()
    found = await scheduler.stub.DescribeCycle(pb2.DescribeCycleRequest(flow_id="f", omit_logs=True))
    assert (found.statistics.total_nodes, found.statistics.completed_nodes) == (2, 2)
    assert not found.logs


async def test_a_description_needs_the_node_task_manager(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await scheduler.run()
    await peers.node_tasks.go_down()
    call = scheduler.stub.DescribeCycle(pb2.DescribeCycleRequest(flow_id="f"))
    error = await refused(call, grpc.StatusCode.UNAVAILABLE, "PEER_UNAVAILABLE")
    assert error.metadata == {"peer": "node task manager"}


async def test_logs_are_merged_filtered_and_paged(
    scheduler: Client, peers: Peers, lines: list[node_task_pb2.NodeLog]
) -> None:
    await scheduler.register()
    for _ in range(3):
        await scheduler.run()
    peers.node_tasks.logs["f", 1] = lines
    whole = [
        *("Starting cycle 0", "Cycle 0 completed"),
        *("line 0", "Starting cycle 1", "Cycle 1 completed", "line 1", "line 2"),
        *("Starting cycle 2", "Cycle 2 completed"),
    ]
    assert await scheduler.lines() == whole
    assert await scheduler.lines(cycle=1) == whole[2:7]
    missing = scheduler.stub.ListLogs(pb2.ListLogsRequest(flow_id="f", cycle=9))
    refusal = await refused(missing, grpc.StatusCode.NOT_FOUND, "CYCLE_NOT_FOUND")
    assert refusal.message == 'no cycle "f:9"; the first was 0, the latest is 2'
    assert await scheduler.lines(node_id="n0") == ["line 0", "line 1", "line 2"]
    assert await scheduler.lines(node_id="n0", min_level=cycle_pb2.LOG_LEVEL_WARNING) == ["line 1"]
    paged: list[str] = []
    token = ""
    while not paged or token:
        page = await scheduler.stub.ListLogs(pb2.ListLogsRequest(flow_id="f", page_size=2, page_token=token))
        assert len(page.lines) <= 2
        paged += [line.message for line in page.lines]
        token = page.next_page_token
    assert paged == whole
    bad = scheduler.stub.ListLogs(pb2.ListLogsRequest(flow_id="f", min_level=9))  # type: ignore[arg-type]
    await refused(bad, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")


async def test_log_line_says_what_wrote_it_where_and_when(
    scheduler: Client, peers: Peers, lines: list[node_task_pb2.NodeLog]
) -> None:
    await scheduler.register()
    await scheduler.run()
    peers.node_tasks.logs["f", 0] = lines
    found = {line.message: line for line in (await scheduler.stub.ListLogs(pb2.ListLogsRequest(flow_id="f"))).lines}
    of_node, of_cycle = found["line 1"], found["Cycle 0 completed"]
    assert of_node == cycle_pb2.LogLine(
        log_id=of_node.log_id,
        flow_id="f",
        cycle=0,
        node_id="n0",
        level=cycle_pb2.LOG_LEVEL_WARNING,
        source=cycle_pb2.LOG_SOURCE_NODE,
        message="line 1",
        created_at=lines[1].created_at,
    )
    assert (of_cycle.flow_id, of_cycle.node_id, of_cycle.source) == ("f", "", cycle_pb2.LOG_SOURCE_SCHEDULER)
    assert of_cycle.created_at == (await scheduler.cycle()).end_time


async def test_log_of_a_node_has_the_lines_of_its_items(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await scheduler.run()
    peers.node_tasks.logs["f", 0] = [
        node_task_pb2.NodeLog(log_id=name, node_id=name, level="INFO", message=name, created_at=Timestamp(seconds=1))
        for name in ("draw", "draw:0", "draw:10", "drawn")
    ]
    assert await scheduler.lines(node_id="draw") == ["draw", "draw:0", "draw:10"]
    assert await scheduler.lines(node_id="draw:1") == []
    assert await scheduler.lines(node_id="draw:10") == ["draw:10"]


async def test_long_log_lines_are_read_over_several_pages(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await scheduler.run()
    said = [f"{at} ".ljust(8192, "é") for at in range(600)]
    stamp = Timestamp(seconds=1)
    peers.node_tasks.logs["f", 0] = [
        node_task_pb2.NodeLog(
            log_id=f"l{at}", node_id="n0", level="INFO", source="node", message=text, created_at=stamp
        )
        for at, text in enumerate(said)
    ]
    read: list[str] = []
    token = ""
    while not read or token:
        request = pb2.ListLogsRequest(flow_id="f", node_id="n0", page_size=1000, page_token=token)
        page = await scheduler.stub.ListLogs(request)
        read += [line.message for line in page.lines]
        token = page.next_page_token
    assert read == said
    described = await scheduler.stub.DescribeCycle(pb2.DescribeCycleRequest(flow_id="f"))
    *node_lines, _, ended = [line.message for line in described.logs]
    assert ended == "Cycle 0 completed"
    assert node_lines == said[-len(node_lines) :]


@pytest.mark.parametrize("reason", REFUSALS)
async def test_read_only_store_can_still_be_read(scheduler: Client, embedded: RedisServer, reason: str) -> None:
    await scheduler.register()
    async with refusing_writes(embedded, reason):
        assert (await scheduler.flow()).flow_id == "f"
        assert [each.flow_id for each in (await scheduler.stub.ListFlows(pb2.ListFlowsRequest())).flows] == ["f"]
        assert not (await scheduler.stub.ListCycles(pb2.ListCyclesRequest(flow_id="f"))).cycles
        await refused(scheduler.run(), grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
