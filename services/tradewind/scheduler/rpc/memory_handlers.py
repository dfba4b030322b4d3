"""The part of SchedulerService for the variables that nodes keep: parse, call the use case, answer."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tradewind.api.scheduler.v1 import memory_pb2 as pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2_grpc as pb2_grpc
from tradewind.scheduler.domain.memory import MAX_BYTES, MemoryChange
from tradewind.scheduler.use_cases.manage_memory import ManageMemory, Scope
from tradewind.server.all_faults import require
from tradewind.server.faults import Violation
from tradewind.server.identifiers import check_identifier, request_id_faults
from tradewind.server.interception import Context
from tradewind.server.json_depth import check_depth

LONGEST_NAME = 128
_encode = msgspec.json.Encoder().encode
_json_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(eq=False, kw_only=True)
class MemoryHandlers(pb2_grpc.SchedulerServiceServicer):
    """Memory of cycles and flows."""

    memory: ManageMemory

    async def GetMemory(self, request: pb2.GetMemoryRequest, context: Context) -> pb2.GetMemoryResponse:
        require(_scope_faults(request.scope))
        memory = await self.memory.get(_scope(request.scope))
        variables = memory.variables
        if request.names:
            variables = {name: variables[name] for name in request.names if name in variables}
        return pb2.GetMemoryResponse(memory=pb2.Memory(variables_json=_text(variables), version=memory.version))

    async def UpdateMemory(self, request: pb2.UpdateMemoryRequest, context: Context) -> pb2.UpdateMemoryResponse:
        faults = _scope_faults(request.scope) + request_id_faults(request.request_id)
        assigned = _assigned(request.set_json, faults)
        result_json = request.result_json if request.HasField("result_json") else None
        if result_json is not None:
            faults += _result_faults(result_json, request.scope)
        require(faults)
        change = MemoryChange(
            assigned,
            tuple(request.delete),
            request.expected_version if request.HasField("expected_version") else None,
            request.request_id,
        )
        memory = await self.memory.change(_scope(request.scope), change, result_json)
        return pb2.UpdateMemoryResponse(version=memory.version)


def _scope_faults(scope: pb2.MemoryScope) -> list[Violation]:
    faults = [fault for fault in [check_identifier("scope.flow_id", scope.flow_id)] if fault is not None]
    if (scope.HasField("run") or scope.run_id) and not scope.HasField("cycle"):
        faults.append(Violation("scope.cycle", "is required with run or run_id"))
    return faults


def _scope(scope: pb2.MemoryScope) -> Scope:
    cycle = scope.cycle if scope.HasField("cycle") else None
    return Scope(scope.flow_id, cycle, scope.run if scope.HasField("run") else None, scope.run_id)


def _assigned(text: str, faults: list[Violation]) -> dict[str, str]:
    """Return the variables to set, JSON text by name; faults are added to `faults`."""
    try:
        given = _json_object(text) if text else {}
        check_depth(text)
    except msgspec.ValidationError:
        faults.append(Violation("set_json", "must be a JSON object of values by name"))
        return {}
    except (msgspec.DecodeError, RecursionError) as error:
        faults.append(Violation("set_json", f"not JSON: {error}"))
        return {}
    for name in given:
        if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
            shown = name if len(name) < 40 else f"{name[:40]}..."
            message = f"a name must have 1 to {LONGEST_NAME} printable characters"
            faults.append(Violation(f"set_json.{shown}", message))
    return {name: bytes(raw).decode() for name, raw in given.items()}


def _result_faults(text: str, scope: pb2.MemoryScope) -> list[Violation]:
    if not scope.HasField("cycle"):
        return [Violation("result_json", "is the result of a cycle: name the cycle in scope.cycle")]
    size = len(text.encode())
    if size > MAX_BYTES:
        return [Violation("result_json", f"{size} bytes; at most {MAX_BYTES} (64 KiB)")]
    try:
        msgspec.json.decode(text)
        check_depth(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return [Violation("result_json", f"not JSON: {error}")]
    return []


def _text(variables: Mapping[str, str]) -> str:
    return _encode({name: msgspec.Raw(value.encode()) for name, value in variables.items()}).decode()
