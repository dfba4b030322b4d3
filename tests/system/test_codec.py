"""With a codec, clients and workers read what the servers and the store cannot."""

import base64
from pathlib import Path

import pytest

from tests.system.processes import Shell
from tests.system.store_files import stored_bytes
from tradewind.client import Client, CycleHandle, RunRequest
from tradewind.codec import AesGcm
from tradewind.flow import Flow
from tradewind.standalone import Standalone
from tradewind.worker import Worker, load_nodes

NODES = "tests.system.coded_nodes"
KEY = bytes(range(32))
CODEC = AesGcm({"2026": KEY})
PLANTED = "grapefruit"
"""A word in the inputs, which is therefore in every payload of the cycle."""


def flow() -> Flow:
    flow = Flow("coded", "1h")
    made = flow.node("made", "words", {"count": 3})
    joined = flow.node("joined", "join")
    made["words"] >> joined["words"]
    loud = flow.node("loud", "shout")
    joined["text"] >> loud["text"]
    both = flow.node("both", "all")
    joined["text"] >> both["texts"]
    loud["text"] >> both["texts"]
    return flow


async def test_payloads_are_readable_only_with_the_codec(
    tmp_path: Path, stack: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " ".join(f"{PLANTED}-{at}" for at in range(3))
    expected = {"both": {"texts": [text, f"{text} {PLANTED}-2".upper()]}}
    worker = Worker(load_nodes(NODES), address=stack.address, codec=CODEC, process_capacity=1)
    async with worker, Client(stack.address, codec=CODEC) as client, Client(stack.address) as client_without_codec:
        await client.register_flow("coded", flow())
        run = await client.run_flow("coded", {"start": PLANTED})
        assert await run.result(60) == expected
        described = await run.describe(include_outputs=True)
        assert described.cycle.inputs == {"start": PLANTED}
        assert described.cycle.given == {"last": f"{PLANTED}-2"}
        assert (await client.get_memory("coded")).variables == {"latest": f"{PLANTED}-2"}
        await client.update_memory("coded", {"mine": PLANTED})
        assert (await client.get_memory("coded")).variables["mine"] == PLANTED
        task = await client.submit_task("join", {"words": [PLANTED, "pie"]})
        assert await task.result(60) == {"text": f"{PLANTED} pie"}

        encoded = await client_without_codec.cycle("coded", run.cycle).describe(include_outputs=True)
        assert PLANTED not in str(encoded).lower()
        assert PLANTED not in str(await client_without_codec.get_memory("coded"))
        assert all(node.outputs for node in encoded.sinks), "they are there, but not to be read"

        shell = Shell(stack.address)
        keys = tmp_path / "keys"
        keys.write_text(f"2026 {base64.b64encode(KEY).decode()}\n")
        monkeypatch.setenv("TRADEWIND_CODEC_KEYS", str(keys))
        shown = ("flow", "memory", "coded", "-o", "json")
        assert PLANTED in await shell("--codec", "tradewind.codec.aes_gcm:aes_gcm", *shown)
        assert PLANTED not in await shell(*shown)
    await stack.stop()
    stored = stored_bytes(tmp_path / "data")
    assert b"coded" in stored
    assert PLANTED.encode() not in stored
    assert PLANTED.upper().encode() not in stored


async def test_bulk_requests_are_split_by_encoded_size(stack: Standalone) -> None:
    """Small values take ten times their size when encoded."""
    many = [{f"p{at}": at for at in range(8)}] * 9000
    async with Client(stack.address, codec=CODEC) as client:
        wide = Flow("wide", "1h", overlap="allow")
        wide.node("joined", "join")
        await client.register_flow("wide", wide)
        runs = await client.run_flows([RunRequest("wide", inputs) for inputs in many])
        assert {type(run) for run in runs} == {CycleHandle}
        batch = await client.submit_batch("join", many)
        assert (await batch.cancel()).progress.total == 9000


async def test_worker_without_the_key_fails_node_with_reason(stack: Standalone) -> None:
    worker = Worker(load_nodes(NODES), address=stack.address, codec=AesGcm({"2027": KEY}), process_capacity=0)
    async with worker, Client(stack.address, codec=CODEC) as client:
        task = await client.submit_task("join", {"words": ["a"]})
        failed = await task.wait(60)
        assert failed.status == "failed"
        assert "an input cannot be decoded" in str(failed.error)
        assert '"2026", which this codec does not have' in str(failed.error)
