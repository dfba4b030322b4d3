"""Revisions of flows in Redis."""

import msgspec

from tradewind.scheduler.domain.revision import Revision
from tradewind.scheduler.stores.redis.fields import pairs_of
from tradewind.scheduler.stores.redis.ranks import OPEN, RUNS, STOPPING
from tradewind.scheduler.stores.redis.scripts import Scripted
from tradewind.server.reading import reading
from tradewind.server.redis.records import read_each, read_in_order


class _StoredRevision(msgspec.Struct, array_like=True):
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


_decode = msgspec.msgpack.Decoder(_StoredRevision).decode


class RedisRevisions:
    """Implements Revisions."""

    def __init__(self, scripted: Scripted) -> None:
        self._client = scripted.client
        self._keys = scripted.keys

    async def newest(self, flow_id: str, below: int, limit: int) -> list[Revision]:
        key = self._keys.history(flow_id)
        (found,) = await read_each(self._client, [key], "HGETALL")
        with reading(key, found):
            stored = {int(number): _decode(value) for number, value in pairs_of(found)}
            labels = {number: msgspec.json.decode(each.labels, type=dict[str, str]) for number, each in stored.items()}
        numbers = sorted((number for number in stored if not below or number < below), reverse=True)[:limit]
        open_runs = await self._open_runs(flow_id, [stored[number] for number in numbers])
        return [
            Revision(
                number,
                stored[number].at_ms,
                stored[number].by,
                stored[number].note,
                stored[number].digest,
                tuple(sorted(labels[number].items())),
                running,
            )
            for number, running in zip(numbers, open_runs, strict=True)
        ]

    async def _open_runs(self, flow_id: str, stored: list[_StoredRevision]) -> list[int]:
        """Return, for each revision, how many runs of the cycles that began with it are open."""
        if not stored:
            return []
        key = self._keys.cycles(flow_id)
        pipeline = self._client.pipeline(transaction=False)
        for each in stored:
            following = each.following * RUNS if each.following >= 0 else STOPPING
            for offset in (OPEN, STOPPING):
                pipeline.execute_command("ZCOUNT", key, offset + each.first * RUNS, f"({offset + following}")
        counts = await read_in_order(key, pipeline)
        return [running + stopping for running, stopping in zip(counts[::2], counts[1::2], strict=True)]
