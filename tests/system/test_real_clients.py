"""The real grpcurl and buf against a running stack: no files, no stubs, only reflection."""

import asyncio
import json
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tradewind.client import Client
from tradewind.standalone import Standalone
from tradewind.worker import Worker, node

BIN = Path(sys.executable).parent
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="the wheel of grpcurl holds a Linux x86-64 program",
)

SCHEDULER = "tradewind.api.scheduler.v1.SchedulerService"
WEATHER = {
    "interval": 60,
    "nodes": [
        {"id": "node_A", "type": "binance_price_node", "config": {"symbol": "BTCUSDT", "interval": "1m"}},
        {"id": "node_B", "type": "ai_model_node", "config": {"model": "gpt-4"}},
    ],
    "edges": [{"source": "node_A", "source_handle": "kline_data", "target": "node_B", "target_handle": "price_input"}],
}
"""The Weather Syntax of the specification, word for word."""


async def run(*command: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def grpcurl(stack: Standalone, method: str, **request: Any) -> tuple[int, Any, str]:
    """Call a method; return the exit code, the parsed answer and stderr."""
    full = method if "/" in method else f"{SCHEDULER}/{method}"
    code, out, err = await run(str(BIN / "grpcurl"), "-plaintext", "-d", json.dumps(request), stack.address, full)
    return code, json.loads(out) if out else None, err


async def test_grpcurl_registers_flow_of_the_specification(stack: Standalone) -> None:
    code, answer, err = await grpcurl(stack, "RegisterFlow", flow_id="spec", weather=WEATHER)
    assert code == 0, err
    component = answer["flow"]["structure"]["components"]["0"]
    assert (component["entry_nodes"], component["node_count"], component["is_dag"]) == (["node_A"], 2, True)
    assert {each["path"] for each in answer["warnings"]} == {"nodes[0].type", "nodes[1].type"}
    code, answer, _ = await grpcurl(stack, "GetFlow", flow_id="spec")
    assert (code, answer["flow"]["flow_id"], answer["flow"]["status"]) == (0, "spec", "FLOW_STATUS_REGISTERED")


CIRCLE = {
    "interval": 1,
    "nodes": [{"id": "a", "type": "t"}],
    "edges": [{"source": "a", "source_handle": "x", "target": "a", "target_handle": "y"}],
}


async def test_grpcurl_shows_that_graph_contains_a_cycle(stack: Standalone) -> None:
    code, answer, err = await grpcurl(stack, "AnalyzeFlow", definition={"weather": CIRCLE})
    assert code == 0, err
    component = answer["structure"]["components"]["0"]
    assert (component["is_dag"], component["error"]) == (False, "Contains cycle")


async def test_grpcurl_shows_false_and_zero_in_answers(stack: Standalone) -> None:
    """JSON omits values that are false or 0, except where the contract asks for them."""
    trigger = "tradewind.api.trigger.v1.TriggerService"
    manager = "tradewind.api.node_task_manager.v1.NodeTaskManagerService"
    registry = "tradewind.api.registry.v1.RegistryService"

    async def answer(method: str, **request: Any) -> Any:
        code, found, err = await grpcurl(stack, method, **request)
        assert code == 0, err
        return found

    await answer("RegisterFlow", flow_id="spec", weather=WEATHER)
    assert (await answer("RegisterFlow", flow_id="spec", weather=WEATHER))["changed"] is False
    same = await answer("UpdateFlow", flow_id="spec", spec={"interval": "60"}, update_mask={"paths": ["interval"]})
    assert same["changed"] is False
    plan = await answer("RegisterFlow", flow_id="spec", weather=WEATHER, validate_only=True)
    assert {each["worker_count"] for each in plan["plan"]["placements"]} == {0}
    assert await answer(f"{trigger}/RemoveTrigger", trigger_id="none", queue="reports") == {"removed": False}
    assert await answer(f"{trigger}/CountListeners", name="price") == {"listeners": 0}
    published = await answer(f"{trigger}/PublishEvent", name="price", event_id="e")
    assert published == {"event_id": "e", "matched": 0, "fired": 0, "listeners": 0}
    await answer(
        f"{trigger}/SaveTrigger", trigger={"trigger_id": "t", "queue": "q", "schedule": {"event": {"name": "x"}}}
    )
    twice = [await answer(f"{trigger}/FireTrigger", trigger_id="t", queue="q", request_id="r") for _ in "12"]
    assert [each["fired"] for each in twice] == [True, False]
    assert await answer(f"{registry}/DeregisterWorker", worker_id="none") == {"removed": False}
    assert await answer(f"{manager}/ClearCache", name="screening") == {"removed": "0"}
    assert await answer(f"{manager}/MarkNotificationsRead", user_id="ann") == {"unread": 0}


async def test_grpcurl_shows_every_fault_with_its_path(stack: Standalone) -> None:
    bad = {"nodes": [{"id": "a b", "type": "x"}], "edges": [{"source": "a"}], "colour": "red"}
    code, _, err = await grpcurl(stack, "RegisterFlow", flow_id="bad", weather=bad)
    assert code == 64 + 3
    for path in ("interval", "nodes[0].id", "edges[0]", "colour"):
        assert path in err


async def test_grpcurl_shows_reason_for_unknown_flow(stack: Standalone) -> None:
    code, _, err = await grpcurl(stack, "StartFlow", flow_id="nobody")
    assert (code, "FLOW_NOT_FOUND" in err) == (64 + 5, True)


async def test_grpcurl_lists_and_describes_services_by_reflection(stack: Standalone) -> None:
    code, out, _ = await run(str(BIN / "grpcurl"), "-plaintext", stack.address, "list")
    assert code == 0
    for name in ("scheduler", "node_task_manager", "registry", "trigger"):
        assert f"tradewind.api.{name}.v1." in out
    code, out, _ = await run(str(BIN / "grpcurl"), "-plaintext", stack.address, "describe", SCHEDULER)
    assert (code, "RunFlowRequest" in out) == (0, True)


async def test_grpcurl_runs_cycle_and_prints_outputs(stack: Standalone, worker: Worker) -> None:
    weather = {"interval": 0, "nodes": [{"id": "only", "type": "numbers", "config": {"count": 2}}]}
    assert (await grpcurl(stack, "RegisterFlow", flow_id="one", weather=weather))[0] == 0
    code, answer, err = await grpcurl(stack, "RunFlow", flow_id="one", wait="20s", include_outputs=True)
    assert code == 0, err
    assert answer["cycle"]["status"] == "CYCLE_STATUS_COMPLETED"
    (output,) = answer["outputs"]
    assert (output["node_id"], output["outputs"]) == ("only", [{"handle": "numbers", "value_json": "[1,2]"}])
    assert (answer["cycle"]["cycle"], answer["cycle"]["run"]) == (0, 0)
    assert (await grpcurl(stack, "GetFlow", flow_id="one"))[1]["flow"]["last_cycle"] == 0


@pytest.mark.parametrize("health", ["liveness", "readiness", SCHEDULER])
async def test_buf_curl_gets_serving_status(stack: Standalone, health: str) -> None:
    command = [str(BIN / "buf"), "curl", "--protocol", "grpc", "--http2-prior-knowledge", "--reflect", "-d"]
    url = f"http://{stack.address}/grpc.health.v1.Health/Check"
    code, out, err = await run(*command, json.dumps({"service": health}), url)
    assert code == 0, err
    assert json.loads(out) == {"status": "SERVING"}


async def test_grpcurl_submits_and_follows_a_batch(stack: Standalone, worker: Worker) -> None:
    """A batch is a stream of messages from the client; a small one is a single message."""
    service = "tradewind.api.node_task_manager.v1.NodeTaskManagerService"

    async def call(method: str, **request: Any) -> str:
        command = (str(BIN / "grpcurl"), "-plaintext", "-d", json.dumps(request), stack.address, f"{service}/{method}")
        code, out, err = await run(*command)
        assert code == 0, err
        return out

    head = {"user_id": "ann", "node_type": "total", "total": 2}
    parameters = ['{"numbers": [1, 2]}', '{"numbers": [3]}']
    batch = json.loads(await call("SubmitBatch", head=head, parameters_json=parameters))["batch"]
    watched = await call("WatchBatch", batch_id=batch["batch_id"], user_id="ann")
    assert '"status": "BATCH_STATUS_COMPLETED"' in watched
    results = json.loads(await call("ListBatchResults", batch_id=batch["batch_id"], user_id="ann"))["items"]
    assert [item["outputs"][0]["value_json"] for item in results] == ["3", "3"]


async def test_called_worker_runs_node_task_sent_by_grpcurl(stack: Standalone) -> None:
    ran: list[int] = []

    @node("remember")
    async def remember(value: int) -> None:
        ran.append(value)

    async with (
        Worker([remember], address=stack.address, listen="127.0.0.1:0") as worker,
        Client(stack.address) as client,
    ):
        (listed,) = [each async for each in client.list_workers()]
        assert listed.worker_id == worker.worker_id
        given = {
            "token": "0~task:t1~1~n",
            "node_task_id": "task:t1",
            "node_type": "remember",
            "attempt": 1,
            "config_json": '{"value": 7}',
        }
        request = json.dumps({"assignments": [given]})
        method = "tradewind.api.worker.v1.WorkerService/Execute"
        code, out, err = await run(str(BIN / "grpcurl"), "-plaintext", "-d", request, listed.api_url, method)
        assert code == 0, err
        assert json.loads(out) == {"accepted_tokens": ["0~task:t1~1~n"]}
        await until(lambda: ran == [7], "it runs")


async def test_grpcurl_saves_triggers_and_publishes_event(stack: Standalone) -> None:
    service = "tradewind.api.trigger.v1.TriggerService"
    nightly = {"trigger_id": "nightly", "queue": "reports", "schedule": {"cron": {"expression": "30 2 * * *"}}}
    listens = {"trigger_id": "apples", "queue": "reports", "schedule": {"event": {"name": "price"}}}
    for trigger in (nightly, listens):
        code, answer, err = await grpcurl(stack, f"{service}/SaveTrigger", trigger=trigger)
        assert (code, err) == (0, "")
        assert answer["trigger"]["queue"] == "reports"

    event = {"name": "price", "payload_json": '{"symbol": "AAPL"}', "event_id": "quote-7"}
    _, published, _ = await grpcurl(stack, f"{service}/PublishEvent", **event)
    _, counts, _ = await grpcurl(stack, f"{service}/CountTriggers", queue="reports")

    assert published == {"event_id": "quote-7", "matched": 1, "fired": 1, "listeners": 1}
    assert (counts["triggers"], counts["scheduled"]) == ("2", "2")
    code, dead, _ = await grpcurl(stack, f"{service}/ListDeadTriggers", queue="reports")
    assert (code, dead) == (0, {})
