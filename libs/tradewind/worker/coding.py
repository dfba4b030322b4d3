"""How a worker with a codec decodes its node tasks and encodes their results."""

from concurrent.futures import Future

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.api.scheduler.v1 import memory_pb2
from tradewind.codec.payloads import Codec, CodecError, decode_text, encode_members, encode_text
from tradewind.worker.attempt import Attempt
from tradewind.worker.errors import MemoryFault, NodeFault
from tradewind.worker.memory import Memories
from tradewind.worker.nodes import AnyNode
from tradewind.worker.outputs import Ending, require_size
from tradewind.worker.processes.pool import ProcessPool
from tradewind.worker.running import NodeRunner
from tradewind.worker.secrets import SecretResolver
from tradewind.worker.threads import ThreadPool


def decode_assignment(codec: Codec, assignment: work_pb2.NodeTaskAssignment) -> None:
    """Replace encoded inputs, run inputs and config by their decoded values.

    Raises a final NodeFault when something cannot be decoded: trying again here would not help.
    """
    try:
        for given in assignment.inputs:
            for at, text in enumerate(given.values_json):
                decoded = decode_text(codec, text)
                if decoded is not text:
                    given.values_json[at] = decoded
        for field in ("run_inputs_json", "config_json"):
            setattr(assignment, field, decode_text(codec, getattr(assignment, field)))
    except CodecError as error:
        raise NodeFault("INVALID_INPUT", f"an input cannot be decoded: {error}", non_retryable=True) from None


def encode_ending(codec: Codec, ending: Ending) -> Ending:
    """Return the outputs, each encoded as a whole. Raises NodeFault OUTPUT_TOO_LARGE."""
    if not isinstance(ending, list):
        return ending
    outputs = [(handle, encode_text(codec, text)) for handle, text in ending]
    require_size({handle: len(text) for handle, text in outputs})
    return outputs


class CodedRunner(NodeRunner):
    """Runs nodes with decoded assignments, and encodes what they emit."""

    def __init__(
        self, codec: Codec, secrets: SecretResolver, threads: ThreadPool, processes: ProcessPool | None = None
    ) -> None:
        super().__init__(secrets, threads, processes)
        self._codec = codec

    async def run(self, attempt: Attempt, node: AnyNode) -> Ending:
        decode_assignment(self._codec, attempt.assignment)
        return encode_ending(self._codec, await super().run(attempt, node))


class CodedMemories:
    """Memories whose variables are encoded one by one; their names are not."""

    def __init__(self, memories: Memories, codec: Codec) -> None:
        self._memories = memories
        self._codec = codec

    def ask(self, method: str, request: bytes) -> "Future[bytes]":
        """Call the scheduler; see Memories."""
        answer: Future[bytes] = Future()
        if method == "UpdateMemory":
            try:
                encoded = self._encode_update(request)
            except CodecError as error:
                answer.set_exception(MemoryFault("INVALID_INPUT", str(error)))
                return answer
            return self._memories.ask(method, encoded)

        def deliver(stored: "Future[bytes]") -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(self._decode_response(stored.result()))
            except CodecError as error:
                answer.set_exception(MemoryFault("INVALID_INPUT", str(error)))
            except BaseException as error:
                answer.set_exception(error)

        self._memories.ask(method, request).add_done_callback(deliver)
        return answer

    def _encode_update(self, request: bytes) -> bytes:
        update = memory_pb2.UpdateMemoryRequest.FromString(request)
        update.set_json = encode_members(self._codec, update.set_json)
        if update.HasField("result_json"):
            update.result_json = encode_text(self._codec, update.result_json)
        return update.SerializeToString()

    def _decode_response(self, answer: bytes) -> bytes:
        response = memory_pb2.GetMemoryResponse.FromString(answer)
        response.memory.variables_json = decode_text(self._codec, response.memory.variables_json)
        return response.SerializeToString()
