"""The outcomes of planned times, in Redis."""

from collections.abc import Collection

from tradewind.scheduler.domain.firing import Firing
from tradewind.scheduler.stores.redis.firing_codec import firing_of
from tradewind.scheduler.stores.redis.scripts import Scripted
from tradewind.server.reading import reading
from tradewind.server.redis.records import read_each


class RedisFirings:
    """Implements Firings."""

    def __init__(self, scripted: Scripted) -> None:
        self._scripted = scripted
        self._client = scripted.client
        self._keys = scripted.keys

    async def newest(self, flow_id: str, before_ms: int, limit: int, backfill_id: int = 0) -> list[Firing]:
        highest = f"({before_ms}" if before_ms else "+inf"
        key = self._keys.backfill_firings(flow_id, backfill_id) if backfill_id else self._keys.firings(flow_id)
        bounds = highest, "-inf", "LIMIT", 0, limit
        (lines,) = await read_each(self._client, [key], "ZREVRANGEBYSCORE", *bounds)
        with reading(key, lines):
            return [firing_of(line.decode()) for line in lines]

    async def waiting(self, partitions: Collection[int], limit: int) -> list[str]:
        keys = [self._keys.queued(each) for each in partitions]
        found = await self._scripted.first_of(keys, limit, lambda flow_id, _: flow_id, up_to=self._scripted.now_ms())
        return [flow_id for flows in found for flow_id in flows]
