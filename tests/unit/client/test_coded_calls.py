"""What a client with a codec sends."""

import pytest

from tests.unit.client.fake_stack import FakeStack
from tests.unit.client.refusal import AWAY
from tradewind.api.node_task_manager.v1 import batch_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client import Client
from tradewind.codec import AesGcm, CodecError
from tradewind.codec.channel import encoded
from tradewind.codec.payloads import decode_text

INPUTS = {"month": "2001-04"}
STREAMED = pytest.mark.parametrize("streamed", [True, False])


class Away:
    """A codec that cannot reach its keys."""

    def encode(self, payload: bytes) -> bytes:
        raise OSError(payload.decode())

    def decode(self, payload: bytes) -> bytes:
        return payload


@STREAMED
async def test_repeated_call_sends_same_encoded_inputs(stack: FakeStack, streamed: bool) -> None:
    """AES-GCM encrypts a value differently each time, and a server refuses a repeated request id with other inputs."""
    stack.scheduler.refusals.extend([AWAY, None])
    async with Client(stack.address, codec=AesGcm({"2026": bytes(32)}), run_stream=streamed) as client:
        await client.run_flow("momentum", INPUTS)

    first, again = (each for each in stack.scheduler.requests if isinstance(each, pb.RunFlowRequest))
    assert "$encoded" in first.inputs_json
    assert first == again


@STREAMED
async def test_failing_codec_keeps_call_from_being_sent(stack: FakeStack, streamed: bool) -> None:
    async with Client(stack.address, codec=Away(), run_stream=streamed) as client:
        with pytest.raises(CodecError, match=r"^the codec cannot encode the value: OSError$"):
            await client.run_flow("momentum", INPUTS)
        assert not stack.scheduler.requests

        assert (await client.run_flow("momentum")).cycle == 0


def test_every_member_of_every_item_of_a_batch_is_encoded_and_decoded() -> None:
    codec = AesGcm({"2026": bytes(32)})
    sent = encoded(codec, batch_pb2.SubmitBatchRequest(parameters_json=['{"n":1}', '{"n":2,"name":"ann"}']))
    assert all(each.count("$encoded") == count for each, count in zip(sent.parameters_json, (1, 2), strict=True))
    assert not any("ann" in each for each in sent.parameters_json)
    assert [decode_text(codec, each) for each in sent.parameters_json] == ['{"n":1}', '{"n":2,"name":"ann"}']
