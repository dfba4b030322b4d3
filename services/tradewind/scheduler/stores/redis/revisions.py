"""Revisions of flows in Redis."""

import msgspec

from tradewind.scheduler.domain.revision import Revision
from tradewind.scheduler.stores.redis.ranks import OPEN, RUNS, STOPPING
from tradewind.scheduler.stores.redis.scripts import Scripted


class _Noted(msgspec.Struct, array_like=True):
    """A revision as register_flow.lua writes it.

    `first` is its first cycle, `following` the first cycle of the next revision, -1 if it is the current one.
    """

    at_ms: int
    by: str
    note: str
    digest: str
    labels: str
    first: int
    following: int


class RedisRevisions:
    """Implements Revisions."""

    def __init__(self, scripted: Scripted) -> None:
        self._client = scripted.client
        self._keys = scripted.keys

    async def newest(self, flow_id: str, below: int, limit: int) -> list[Revision]:
        found = await self._client.hgetall(self._keys.history(flow_id))
        noted = {int(number): msgspec.msgpack.decode(value, type=_Noted) for number, value in found.items()}
        numbers = sorted((number for number in noted if not below or number < below), reverse=True)[:limit]
        open_runs = await self._open_runs(flow_id, [noted[number] for number in numbers])
        return [
            Revision(
                number,
                noted[number].at_ms,
                noted[number].by,
                noted[number].note,
                noted[number].digest,
                tuple(sorted(msgspec.json.decode(noted[number].labels, type=dict[str, str]).items())),
                running,
            )
            for number, running in zip(numbers, open_runs, strict=True)
        ]

    async def _open_runs(self, flow_id: str, noted: list[_Noted]) -> list[int]:
        """Return, for each revision, how many runs of the cycles that began with it are open."""
        if not noted:
            return []
        key = self._keys.cycles(flow_id)
        pipeline = self._client.pipeline(transaction=False)
        for each in noted:
            following = each.following * RUNS if each.following >= 0 else STOPPING
            for above in (OPEN, STOPPING):
                pipeline.execute_command("ZCOUNT", key, above + each.first * RUNS, f"({above + following}")
        counts = await pipeline.execute()
        return [going + stopping for going, stopping in zip(counts[::2], counts[1::2], strict=True)]
