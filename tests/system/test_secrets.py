"""A secret is planted, nodes do what they should not with it, and it is nowhere to be found."""

import secrets
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from tests.system.collector import Collector, running_collector
from tests.system.processes import Processes, Shell
from tests.system.store_files import stored_bytes
from tests.waiting import until
from tradewind.client import Client
from tradewind.flow import Flow
from tradewind.standalone import Standalone

NODES = "tests.system.secret_nodes"
MARKER = "a-value-that-may-be-seen"


class WholeTraces(Collector):
    """Keeps everything that was sent, as received."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    async def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: object
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        self.sent += request.SerializeToString()
        return await super().Export(request, context)


def flow() -> Flow:
    flow = Flow("keyed", "1h")
    key = {"$secret": "broker.key"}
    logged = flow.node("logged", "logged", {"key": key, "shown": MARKER})
    for name in ("raised", "in_process", "emitted"):
        logged["length"] >> flow.node(name, name, {"key": key})["length"]
    return flow


async def test_secret_appears_in_no_output_log_trace_or_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], processes: Processes
) -> None:
    planted = secrets.token_urlsafe(24)
    files = tmp_path / "secrets"
    files.mkdir()
    (files / "broker.key").write_text(f"{planted}\n")
    traces = WholeTraces()
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("TRADEWIND_SECRETS_DIR", str(files))
    monkeypatch.setenv("TRADEWIND_LOG_LEVEL", "debug")
    seen: list[str] = []
    async with running_collector(traces):
        monkeypatch.setenv("TRADEWIND_OTLP_ENDPOINT", traces.endpoint)
        async with Standalone(data=tmp_path / "data", port=0) as stack, Client(stack.address) as client:
            worker = processes.start("worker", NODES, "--processes", "1", address=stack.address)
            await worker.wait_for_output("connected as")
            await client.register_flow("keyed", flow())
            run = await client.run_flow("keyed")
            await run.wait(60)
            described = await run.describe(include_outputs=True)
            failed = {each.node_id: str(each.error) for each in described.failures}
            assert set(failed) == {"raised", "in_process", "emitted"}
            assert "[secret broker.key]" in failed["raised"]
            assert "[secret broker.key]" in failed["in_process"]
            assert "output key contains the value of the secret broker.key" in failed["emitted"]
            assert next(node.outputs for node in described.nodes if node.node_id == "logged") == {
                "length": len(planted)
            }
            shell = Shell(stack.address)
            for command in (
                ("cycle", "show", "keyed", "0", "-o", "json"),
                ("cycle", "show", "keyed", "0"),
                ("flow", "logs", "keyed"),
                ("flow", "status", "keyed", "-o", "json"),
                ("explain", "keyed", "raised"),
                ("task", "show", "keyed:0:0:in_process", "-o", "json"),
            ):
                seen.append(await shell(*command))
            seen.append(str(described))

            def ended() -> int:
                return sum(each.failed and each.name.startswith("node ") for each in traces.spans)

            await until(lambda: ended() == len(failed), "the traces of the failed nodes have arrived")
            seen.append(worker.output)
    seen += capfd.readouterr()
    everything = "\n".join(seen)
    assert "the key is [secret broker.key]" in everything
    assert planted not in everything
    assert b"secret broker.key" in traces.sent, "errors are in traces"
    assert planted.encode() not in traces.sent
    stored = stored_bytes(tmp_path / "data")
    assert MARKER.encode() in stored, "what is kept can be found by looking so"
    assert planted.encode() not in stored
