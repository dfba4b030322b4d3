"""What a node task of a shard in Redis waits behind."""

from tradewind.node_task_manager.ports.explaining import Holders, Place
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.redis.client import Client


class RedisWaits:
    """A WaitReader; each method takes a handful of commands, however long a queue is."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def holders(self, limit: str, most: int) -> Holders:
        key = self._keys.inflight() if limit == "running" else self._keys.slots(limit)
        pipeline = self._client.pipeline(transaction=False)
        pipeline.execute_command("ZCARD", key)
        pipeline.execute_command("ZRANGE", key, "-inf", "+inf", "BYSCORE", "LIMIT", 0, most)
        count, ids = await pipeline.execute()
        return Holders(int(count), tuple(each.decode() for each in ids))

    async def full_in_us(self, bucket: str) -> int:
        pipeline = self._client.pipeline(transaction=False)
        pipeline.execute_command("GET", self._keys.bucket(bucket))
        pipeline.execute_command("TIME")
        full_at, (seconds, microseconds) = await pipeline.execute()
        return max(0, int(full_at or 0) - int(seconds) * 1_000_000 - int(microseconds))

    async def place(self, node_type: str, user_id: str, task_id: str) -> Place:
        pipeline = self._client.pipeline(transaction=False)
        pipeline.execute_command("ZRANK", self._keys.ready(node_type, user_id), task_id)
        pipeline.execute_command("ZCARD", self._keys.ready(node_type, user_id))
        pipeline.execute_command("ZCARD", self._keys.ring(node_type))
        rank, queued, users = await pipeline.execute()
        return Place(-1 if rank is None else int(rank), int(queued), max(0, int(users) - 1))
