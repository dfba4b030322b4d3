"""The memory of a cycle and a flow, for a node in a test."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import msgspec

from tradewind.api.scheduler.v1 import memory_pb2 as pb
from tradewind.flow.json_text import encode_json
from tradewind.worker.errors import MemoryFault

_MOST_BYTES = 64 * 1024
_LONGEST_NAME = 128


class MemoryInTest:
    """Answers as the scheduler does, from dicts; `result` is the result that the node set for its cycle."""

    def __init__(self, cycle: Mapping[str, Any], flow: Mapping[str, Any]) -> None:
        self.cycle = _copied(cycle, "cycle_memory")
        self.flow = _copied(flow, "flow_memory")
        self.result: Any = None
        self._versions = {"cycle": 0, "flow": 0}
        self._made: set[tuple[str, str]] = set()

    def ask(self, method: str, request: bytes) -> "Future[bytes]":
        """Answer at once; implements Memories of the worker."""
        answer: Future[bytes] = Future()
        try:
            if method == "GetMemory":
                answer.set_result(self._get(pb.GetMemoryRequest.FromString(request)))
            else:
                answer.set_result(self._update(pb.UpdateMemoryRequest.FromString(request)))
        except MemoryFault as fault:
            answer.set_exception(fault)
        return answer

    def _get(self, request: pb.GetMemoryRequest) -> bytes:
        whose, variables = self._of(request.scope)
        wanted = {name: value for name, value in variables.items() if not request.names or name in request.names}
        memory = pb.Memory(variables_json=msgspec.json.encode(wanted).decode(), version=self._versions[whose])
        return pb.GetMemoryResponse(memory=memory).SerializeToString()

    def _update(self, request: pb.UpdateMemoryRequest) -> bytes:
        whose, variables = self._of(request.scope)
        assigned = msgspec.json.decode(request.set_json) if request.set_json else {}
        if not all(1 <= len(name) <= _LONGEST_NAME and name.isprintable() for name in assigned):
            raise MemoryFault("INVALID_INPUT", f"a name must have 1 to {_LONGEST_NAME} printable characters")
        if len(request.result_json.encode()) > _MOST_BYTES:
            raise MemoryFault("INVALID_INPUT", "the result would take more than 64 KiB")
        if request.HasField("result_json"):
            self.result = msgspec.json.decode(request.result_json)
        if not request.request_id or (whose, request.request_id) not in self._made:
            self._change(whose, variables, assigned, request)
        return pb.UpdateMemoryResponse(version=self._versions[whose]).SerializeToString()

    def _change(
        self, whose: str, variables: dict[str, Any], assigned: dict[str, Any], request: pb.UpdateMemoryRequest
    ) -> None:
        if request.HasField("expected_version") and request.expected_version != self._versions[whose]:
            raise MemoryFault("VERSION_CONFLICT", f"the memory of the {whose} was changed by others")
        changed = {name: value for name, value in variables.items() if name not in request.delete} | assigned
        if len(msgspec.json.encode(changed)) > _MOST_BYTES:
            raise MemoryFault("TOO_LARGE", f"the memory of the {whose} would take more than 64 KiB")
        variables.clear()
        variables.update(changed)
        self._versions[whose] += 1
        self._made.add((whose, request.request_id))

    def _of(self, scope: pb.MemoryScope) -> tuple[str, dict[str, Any]]:
        return ("cycle", self.cycle) if scope.HasField("cycle") else ("flow", self.flow)


def _copied(variables: Mapping[str, Any], what: str) -> dict[str, Any]:
    copied: dict[str, Any] = msgspec.json.decode(encode_json(dict(variables), what))
    return copied
