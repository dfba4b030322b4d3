"""Which workers are connected to any replica, in Redis."""

from collections.abc import Callable, Mapping, Sequence

from tradewind.node_task_manager.ports.connected import ConnectionChanges, LastOffer
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.redis.client import Client
from tradewind.server.redis.script import Script

_RECORD = Script(__name__, "record_connected", bool)


class RedisConnectedWorkers:
    """Implements ConnectedWorkers; `clock` returns 0 for the store's own time. It reads by plain commands, which even a
    store that takes no writes answers."""

    def __init__(self, client: Client, keys: Keys, clock: Callable[[], int]) -> None:
        self._client = client
        self._keys = keys
        self._clock = clock

    async def record(self, replica: str, keep_ms: int, changes: ConnectionChanges) -> bool:
        args = {
            "base": self._keys.base,
            "now": self._clock(),
            "replica": replica,
            "keep": keep_ms,
            "whole": changes.whole,
            "workers": list(changes.workers.items()),
            "offered": [name for name, last in changes.node_types.items() if last is None],
            "withdrawn": [
                (name, last.worker_id, last.until_ms) for name, last in changes.node_types.items() if last is not None
            ],
        }
        return await _RECORD(self._client, [self._keys.connected()], args)

    async def unoffered(self, node_types: Sequence[str]) -> Mapping[str, LastOffer]:
        reports = await self._reports([f"type:{name}" for name in node_types])
        missing = [name for place, name in enumerate(node_types) if not any(each[place] for each in reports)]
        if not missing:
            return {}
        pipeline = self._client.pipeline(transaction=False)
        for name in missing:
            pipeline.get(self._keys.last_offer(name))
        return {name: _parse_last_offer(text) for name, text in zip(missing, await pipeline.execute(), strict=True)}

    async def since(self, worker_ids: Sequence[str]) -> Mapping[str, int]:
        reports = await self._reports([f"worker:{name}" for name in worker_ids])
        since = [max((int(each[place] or 0) for each in reports), default=0) for place in range(len(worker_ids))]
        return {name: since_ms for name, since_ms in zip(worker_ids, since, strict=True) if since_ms}

    async def _reports(self, fields: Sequence[str]) -> Sequence[Sequence[bytes | None]]:
        """Return these fields of the reports of each replica that is present."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.execute_command("TIME")
        pipeline.execute_command("ZRANGE", self._keys.connected(), 0, -1, "WITHSCORES")
        (seconds, micros), replicas = await pipeline.execute()
        now_ms = self._clock() or int(seconds) * 1000 + int(micros) // 1000
        untils = zip(replicas[::2], replicas[1::2], strict=True)
        present = [name.decode() for name, until in untils if float(until) > now_ms]
        if not present or not fields:
            return []
        pipeline = self._client.pipeline(transaction=False)
        for name in present:
            pipeline.hmget(self._keys.connected_to(name), list(fields))
        return await pipeline.execute()


def _parse_last_offer(text: bytes | None) -> LastOffer:
    until, _, worker_id = (text or b"0 ").decode().partition(" ")
    return LastOffer(worker_id, int(until))
