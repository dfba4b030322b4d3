"""One trace for each cycle, across all processes and attempts, as a real OTLP receiver gets it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.system.collector import Collector, ReceivedSpan, running_collector, tree
from tests.system.processes import Processes
from tests.waiting import until
from tradewind.client import Client, CycleStatus
from tradewind.flow import Flow, Retry
from tradewind.standalone import Standalone

NODES = "tests.system.traced_nodes"
BEGIN = "fire > begin_cycle"
TREE = [
    "fire",
    BEGIN,
    f"{BEGIN} > submit",
    f"{BEGIN} > end_cycle",
    *(
        f"{BEGIN} > dispatch traced.{step}"
        for step in (
            "branch",
            "branch > node traced.branch",
            "branch > node traced.branch > complete",
            "branch > node traced.branch > deciding",
            "flaky",
            "flaky > node traced.flaky!",
            "flaky > node traced.flaky! > complete!",
            "flaky > node traced.flaky! > trying",
            "flaky",
            "flaky > node traced.flaky",
            "flaky > node traced.flaky > complete",
            "flaky > node traced.flaky > trying",
            "apart",
            "apart > node traced.apart",
            "apart > node traced.apart > apart",
            "apart > node traced.apart > complete",
            "apart_async",
            "apart_async > node traced.apart_async",
            "apart_async > node traced.apart_async > apart, waiting",
            "apart_async > node traced.apart_async > complete",
        )
    ),
]
SERVICES = {
    "fire": "tradewind-trigger",
    "begin_cycle": "tradewind-scheduler",
    "end_cycle": "tradewind-scheduler",
    "submit": "tradewind-node-task-manager",
    "dispatch": "tradewind-node-task-manager",
    "complete": "tradewind-node-task-manager",
}


@pytest_asyncio.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    """The collector to which the processes of the test send their spans."""
    async with running_collector() as collector:
        monkeypatch.setenv("TRADEWIND_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield collector


def branching() -> Flow:
    """Return branch -> flaky (a thread, fails once) -> two processes; the other branch is skipped."""
    flow = Flow("branching", "1h")
    branch = flow.node("branch", "traced.branch")
    flaky = flow.node("flaky", "traced.flaky", retry=Retry(2, "1ms", jitter=0))
    branch["left"] >> flaky["value"]
    branch["right"] >> flow.node("never", "traced.apart")["value"]
    flaky["value"] >> flow.node("apart", "traced.apart")["value"]
    flaky["value"] >> flow.node("apart_async", "traced.apart_async")["value"]
    return flow


async def test_cycle_with_branch_and_retry_is_one_trace(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Processes
) -> None:
    monkeypatch.setenv("TRADEWIND_LOG_FORMAT", "json")
    async with Standalone(data=tmp_path / "data", port=0) as stack, Client(stack.address) as client:
        worker = processes.start("worker", NODES, address=stack.address)
        await worker.wait_for_output("connected as")
        await client.register_flow("branching", branching())
        await client.flow("branching").start()

        def spans() -> list[ReceivedSpan]:
            return collector.trace_of("begin_cycle", flow_id="branching", cycle=0)

        await until(lambda: len(spans()) >= len(TREE), "every span of the cycle has arrived", timeout=60)
        cycle = await client.get_cycle("branching", 0)
    assert tree(spans()) == sorted(TREE)
    assert {each.trace.hex() for each in spans()} == {cycle.trace_id}
    for each in spans():
        assert each.service == SERVICES.get(each.name.split(" ")[0], "tradewind-worker"), each
    first, second = sorted(
        (each for each in spans() if each.name == "dispatch traced.flaky"),
        key=lambda each: each.attributes["tradewind.attempt"],
    )
    assert second.links == (first.span,)
    assert all(each.links == () for each in spans() if each is not second)
    (end,) = (each for each in spans() if each.name == "end_cycle")
    assert end.attributes["tradewind.status"] == "completed"
    logged = [json.loads(line) for line in worker.output.splitlines() if line.startswith('{"event"')]
    (failed,) = (line for line in logged if "branching:0:0:flaky failed: ValueError" in line["event"])
    (apart,) = (line for line in logged if line["event"] == "value 2")
    for line, name in ((failed, "node traced.flaky"), (apart, "apart")):
        assert line["trace_id"] == cycle.trace_id
        assert line["span_id"] in {each.span.hex() for each in spans() if each.name == name}


async def test_attempts_that_nobody_was_given_can_be_linked_to(
    collector: Collector, tmp_path: Path, processes: Processes
) -> None:
    flow = Flow("eager", "1h")
    second = flow.node("second", "traced.eager", retry=Retry(2, "1ms", jitter=0))
    flow.node("first", "traced.branch")["left"] >> second["value"]
    for name in ("one", "two"):
        flow.node(name, "traced.shared")
    async with Standalone(data=tmp_path / "data", port=0) as stack, Client(stack.address) as client:
        worker = processes.start("worker", NODES, address=stack.address)
        await worker.wait_for_output("connected as")
        await client.register_flow("eager", flow)
        assert (await (await client.run_flow("eager")).wait(30)).status is CycleStatus.COMPLETED
        assert await worker.interrupt() == 0
    spans = collector.trace_of("begin_cycle", flow_id="eager")
    names = [line.split("begin_cycle > ")[-1] for line in tree(spans)]
    assert names.count("dispatch traced.branch > node traced.branch > begin_eager") == 1
    assert names.count("dispatch traced.branch > node traced.eager!") == 1
    assert names.count("dispatch traced.eager > node traced.eager") == 1
    assert [name for name in names if name.endswith("traced.shared")] == [
        "cached traced.shared",
        "dispatch traced.shared",
        "dispatch traced.shared > node traced.shared",
        "postpone traced.shared",
    ]
    links = {each.name: [span.name for span in spans if span.span in each.links] for each in spans if each.links}
    assert links == {"dispatch traced.eager": ["begin_eager"], "cached traced.shared": ["postpone traced.shared"]}


async def test_unsampled_cycle_sends_no_spans(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Processes
) -> None:
    monkeypatch.setenv("TRADEWIND_TRACE_SAMPLING", "0")
    async with Standalone(data=tmp_path / "data", port=0) as stack, Client(stack.address) as client:
        worker = processes.start("worker", NODES, address=stack.address)
        await worker.wait_for_output("connected as")
        await client.register_flow("branching", branching())
        cycle = await (await client.run_flow("branching")).wait(30)
        assert cycle.status.value == "completed"
        assert await worker.interrupt() == 0
    # Worker and stack have ended, so they have sent all they had.
    assert collector.spans == []
