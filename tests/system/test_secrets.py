"""A secret is planted, nodes do with it what they should not, and it is nowhere to be found."""

import secrets
from pathlib import Path

import pytest

from tests.system.processes import Shell
from tradewind.client import Client
from tradewind.flow import Flow
from tradewind.standalone import Standalone
from tradewind.worker import Worker, load_nodes

NODES = "tests.system.secret_nodes"
MARKER = "a-value-that-may-be-seen"


def flow() -> Flow:
    flow = Flow("keyed", "1h")
    key = {"$secret": "broker.key"}
    told = flow.node("told", "told", {"key": key, "shown": MARKER})
    for name in ("raised", "apart", "emitted"):
        told["length"] >> flow.node(name, name, {"key": key})["length"]
    return flow


async def test_a_planted_secret_is_in_no_output_no_log_and_not_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    planted = secrets.token_urlsafe(24)
    files = tmp_path / "secrets"
    files.mkdir()
    (files / "broker.key").write_text(f"{planted}\n")
    monkeypatch.setenv("TRADEWIND_SECRETS_DIR", str(files))
    monkeypatch.setenv("TRADEWIND_LOG_LEVEL", "debug")
    seen: list[str] = []
    async with Standalone(data=tmp_path / "data", port=0) as stack:
        worker = Worker(load_nodes(NODES), address=stack.address, process_capacity=1)
        async with worker, Client(stack.address) as client:
            await client.register_flow("keyed", flow())
            run = await client.run_flow("keyed")
            await run.wait(60)
            described = await run.describe(include_outputs=True)
            failed = {each.node_id: str(each.error) for each in described.failures}
            assert set(failed) == {"raised", "apart", "emitted"}
            assert "[secret broker.key]" in failed["raised"]
            assert "[secret broker.key]" in failed["apart"]
            assert "output key holds the value of the secret broker.key" in failed["emitted"]
            assert next(node.outputs for node in described.nodes if node.node_id == "told") == {"length": len(planted)}
            shell = Shell(stack.address)
            commands = (
                ("cycle", "show", "keyed", "0", "-o", "json"),
                ("cycle", "show", "keyed", "0"),
                ("flow", "logs", "keyed"),
                ("flow", "status", "keyed", "-o", "json"),
                ("explain", "keyed", "raised"),
                ("task", "get", "keyed:0:0:apart", "-o", "json"),
            )
            for command in commands:
                seen.append(await shell(*command, ends=0))
            seen.append(str(described))
    seen += [record.getMessage() for record in caplog.records]
    seen += capfd.readouterr()
    everything = "\n".join(seen)
    assert "the key is [secret broker.key]" in everything
    assert planted not in everything
    kept = b"".join(path.read_bytes() for path in sorted((tmp_path / "data").rglob("*")) if path.is_file())
    assert MARKER.encode() in kept, "what is kept can be found by looking so"
    assert planted.encode() not in kept
