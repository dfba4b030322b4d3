"""What a client asks the scheduler about the variables that nodes keep."""

from collections.abc import Iterable, Mapping
from typing import Any

from tradewind.api.scheduler.v1 import memory_pb2 as pb
from tradewind.client import json_text
from tradewind.client.calls import new_request_id
from tradewind.client.connection import Connection
from tradewind.client.memories import MemoryRecord
from tradewind.client.messages import build
from tradewind.client.wire import as_list


class MemoryCalls:
    """Memory of flows and of their cycles."""

    _connection: Connection

    async def get_memory(self, flow_id: str, *, cycle: int | None = None, run: int | None = None) -> MemoryRecord:
        """Return the variables that a flow carries from cycle to cycle, or those of one `cycle`.

        `run` is a run of that cycle, by default its latest. Raises NotFound.
        """
        request = build(pb.GetMemoryRequest, scope=_scope(flow_id, cycle, run))
        answer = await self._connection.call(self._connection.scheduler.GetMemory, request)
        return MemoryRecord(json_text.decode(answer.memory.variables_json), answer.memory.version)

    async def update_memory(
        self,
        flow_id: str,
        values: Mapping[str, Any] | None = None,
        *,
        delete: Iterable[str] = (),
        cycle: int | None = None,
        run: int | None = None,
        expected_version: int | None = None,
    ) -> int:
        """Set variables to JSON `values` and `delete` others, all or none; return their new version.

        With `expected_version`, raises Aborted if they are at another version: read them again. Raises NotFound,
        WrongStatus for a cycle that has ended, Exhausted over 64 KiB, ValueError for a value that JSON cannot hold.
        """
        request = build(
            pb.UpdateMemoryRequest,
            scope=_scope(flow_id, cycle, run),
            set_json=json_text.encode(values or {}),
            delete=as_list(delete),
            expected_version=expected_version,
            request_id=new_request_id(),
        )
        answer = await self._connection.call(self._connection.scheduler.UpdateMemory, request)
        return answer.version


def _scope(flow_id: str, cycle: int | None, run: int | None) -> pb.MemoryScope:
    return build(pb.MemoryScope, flow_id=flow_id, cycle=cycle, run=run)
