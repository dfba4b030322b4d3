"""The memory of flows in Redis."""

from tradewind.scheduler.domain.chain_state import UpdateOutcome, UpdateResult
from tradewind.scheduler.domain.memory import NO_MEMORY, Memory
from tradewind.scheduler.stores.redis.note_codec import memory_of, memory_text
from tradewind.scheduler.stores.redis.scripts import Scripted, script
from tradewind.server.reading import reading
from tradewind.server.redis.records import read_all

_SAVE = script("save_memory", tuple[UpdateOutcome, int])


class RedisFlowMemories:
    """Implements FlowMemories."""

    def __init__(self, scripted: Scripted) -> None:
        self._scripted = scripted
        self._client = scripted.client
        self._keys = scripted.keys

    async def load(self, flow_id: str) -> Memory | None:
        flow, memory = self._keys.flow(flow_id), self._keys.memory(flow_id)
        status, stored = await read_all(self._client, [("HGET", flow, "status"), ("HGET", memory, "memory")])
        with reading(flow, status):
            if status is None or status == b"deleting":
                return None
        with reading(memory, stored):
            return NO_MEMORY if stored is None else memory_of(stored.decode())

    async def try_save(self, flow_id: str, memory: Memory) -> UpdateResult:
        saved = await self._scripted.call_for_flow(
            _SAVE, flow_id, self._keys.memory(flow_id), version=memory.version - 1, memory=memory_text(memory)
        )
        return UpdateResult(*saved)
