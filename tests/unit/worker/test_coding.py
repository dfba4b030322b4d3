"""Variables through a codec when something goes wrong, and what it does not encode."""

import asyncio
import logging
from concurrent.futures import Future

import pytest

from tradewind.api.scheduler.v1 import memory_pb2
from tradewind.server.hidden_values import ENCODED_KEY
from tradewind.worker import MemoryFault, Wait
from tradewind.worker.coding import CodedMemories, encode_ending


class Keyless:
    """A codec that has lost its key."""

    def encode(self, payload: bytes) -> bytes:
        raise KeyError("no key")

    def decode(self, payload: bytes) -> bytes:
        raise KeyError("no key")


class Kept:
    """Memories that answer when the test tells them to."""

    def __init__(self) -> None:
        self.answer: Future[bytes] = Future()

    def ask(self, method: str, request: bytes) -> "Future[bytes]":
        return self.answer


def test_wait_is_reported_as_it_is() -> None:
    suspension = Wait("paid").encode(["output"])

    assert encode_ending(Keyless(), suspension) is suspension


def test_failed_encoding_is_returned_as_memory_fault() -> None:
    update = memory_pb2.UpdateMemoryRequest(set_json='{"cursor":1}').SerializeToString()

    answer = CodedMemories(Kept(), Keyless()).ask("UpdateMemory", update)

    with pytest.raises(MemoryFault, match="the codec cannot encode the value: KeyError") as caught:
        answer.result(0)
    assert caught.value.reason == "INVALID_INPUT"


def test_failed_decoding_is_returned_as_memory_fault() -> None:
    kept = Kept()
    answer = CodedMemories(kept, Keyless()).ask("GetMemory", b"")
    variables = memory_pb2.Memory(variables_json=f'{{"cursor":{{"{ENCODED_KEY}":"eA=="}}}}')
    kept.answer.set_result(memory_pb2.GetMemoryResponse(memory=variables).SerializeToString())

    with pytest.raises(MemoryFault, match="KeyError") as caught:
        answer.result(0)
    assert caught.value.reason == "INVALID_INPUT"


async def test_late_answer_to_cancelled_request_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    asking = asyncio.wrap_future(CodedMemories(kept, Keyless()).ask("GetMemory", b""))
    asking.cancel()
    await asyncio.wait((asking,))

    kept.answer.set_result(memory_pb2.GetMemoryResponse().SerializeToString())

    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
