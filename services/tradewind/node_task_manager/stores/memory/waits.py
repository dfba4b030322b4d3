"""What a node task of a shard in memory waits behind."""

from tradewind.node_task_manager.ports.explaining import Holders, Place
from tradewind.node_task_manager.stores.memory.shard import MemoryShard


class MemoryWaits:
    """A WaitReader."""

    def __init__(self, shard: MemoryShard) -> None:
        self._shard = shard

    async def holders(self, limit: str, most: int) -> Holders:
        ids = await self._shard.holders(limit)
        return Holders(len(ids), tuple(ids[:most]))

    async def full_in_us(self, bucket: str) -> int:
        return (await self._shard.held([f"rate:{bucket}"]))[0]

    async def place(self, node_type: str, user_id: str, task_id: str) -> Place:
        return Place(*self._shard.place(node_type, user_id, task_id))
