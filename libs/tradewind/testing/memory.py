"""The memory of a cycle and a flow, for a node in a test."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import msgspec

from tradewind.api.scheduler.v1 import memory_pb2 as pb
from tradewind.flow.json_text import encode_json
from tradewind.server.json_depth import check_depth
from tradewind.worker.errors import MemoryFault

_MAX_BYTES = 64 * 1024
_MAX_NAME_CHARACTERS = 128


class FakeMemory:
    """Answers as the scheduler does, from dicts; `result` is the result that the node set for its cycle."""

    def __init__(self, cycle: Mapping[str, Any], flow: Mapping[str, Any]) -> None:
        self.cycle = _copied(cycle, "cycle_memory")
        self.flow = _copied(flow, "flow_memory")
        self.result: Any = None
        self._versions = {"cycle": 0, "flow": 0}
        self._applied: set[tuple[str, str]] = set()

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
        owner, variables = self._variables_of(request.scope)
        wanted = {name: value for name, value in variables.items() if not request.names or name in request.names}
        memory = pb.Memory(variables_json=msgspec.json.encode(wanted).decode(), version=self._versions[owner])
        return pb.GetMemoryResponse(memory=memory).SerializeToString()

    def _update(self, request: pb.UpdateMemoryRequest) -> bytes:
        owner, variables = self._variables_of(request.scope)
        assigned = msgspec.json.decode(request.set_json) if request.set_json else {}
        if not all(1 <= len(name) <= _MAX_NAME_CHARACTERS and name.isprintable() for name in assigned):
            raise MemoryFault("INVALID_INPUT", f"a name must have 1 to {_MAX_NAME_CHARACTERS} printable characters")
        for text in (request.set_json, request.result_json):
            _refuse_depth(text)
        if len(request.result_json.encode()) > _MAX_BYTES:
            raise MemoryFault("INVALID_INPUT", "the result would take more than 64 KiB")
        if request.HasField("result_json"):
            self.result = msgspec.json.decode(request.result_json)
        if not request.request_id or (owner, request.request_id) not in self._applied:
            self._change(owner, variables, assigned, request)
        return pb.UpdateMemoryResponse(version=self._versions[owner]).SerializeToString()

    def _change(
        self, owner: str, variables: dict[str, Any], assigned: dict[str, Any], request: pb.UpdateMemoryRequest
    ) -> None:
        if request.HasField("expected_version") and request.expected_version != self._versions[owner]:
            raise MemoryFault("VERSION_CONFLICT", f"the memory of the {owner} was changed by others")
        changed = {name: value for name, value in variables.items() if name not in request.delete} | assigned
        if _size(changed) > _MAX_BYTES:
            raise MemoryFault("TOO_LARGE", f"the memory of the {owner} would take more than 64 KiB")
        variables.clear()
        variables.update(changed)
        self._versions[owner] += 1
        self._applied.add((owner, request.request_id))

    def _variables_of(self, scope: pb.MemoryScope) -> tuple[str, dict[str, Any]]:
        return ("cycle", self.cycle) if scope.HasField("cycle") else ("flow", self.flow)


def _refuse_depth(text: str) -> None:
    try:
        check_depth(text)
    except RecursionError as error:
        raise MemoryFault("INVALID_INPUT", f"not JSON: {error}") from None


def _size(variables: Mapping[str, Any]) -> int:
    """Return the size in bytes that the scheduler counts for variables: four beside each name and value."""
    return 2 + sum(len(name.encode()) + len(msgspec.json.encode(value)) + 4 for name, value in variables.items())


def _copied(variables: Mapping[str, Any], what: str) -> dict[str, Any]:
    copied: dict[str, Any] = msgspec.json.decode(encode_json(dict(variables), what))
    return copied
