"""The events of one shard in Redis."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from tradewind.node_task_manager.ports.events import Event, position
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.faults import Unreadable
from tradewind.server.redis.client import Client
from tradewind.server.redis.records import is_of_another_type, read_all
from tradewind.server.redis.script import Script

_SUBSCRIBE = Script(__name__, "subscribe_events", bool)


class RedisEventLog:
    """An EventLog over one stream per partition."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def subscribe(self, partition: int, epoch: int) -> bool:
        return await _SUBSCRIBE(self._client, [self._keys.events_epoch(partition)], {"epoch": epoch})

    async def read(self, after: dict[int, str], limit: int) -> list[Event]:
        partitions = list(after)
        streams = [self._keys.events(partition) for partition in partitions]
        try:
            raw = await self._client.call(streams[0], "XREAD", "COUNT", limit, "STREAMS", *streams, *after.values())
        except ResponseError as error:
            if not is_of_another_type(error):
                raise
            raw = await self._read_each(streams, after.values(), limit)
        names = dict(zip(streams, partitions, strict=True))
        events: list[Event] = []
        for stream, entries in raw or ():
            partition = names[stream.decode()]
            for entry_id, fields in entries:
                name, packed = _only_field(fields)
                facts = msgspec.msgpack.decode(packed)
                events.append(msgspec.convert([name.decode(), entry_id.decode(), partition, *facts], Event))
        return events

    async def _read_each(self, streams: Sequence[str], after: Iterable[str], limit: int) -> list[Any]:
        """Read each stream alone; one of another type counts as empty until the next event, which takes its place."""
        ranges = [("XRANGE", key, f"({at}", "+", "COUNT", limit) for key, at in zip(streams, after, strict=True)]
        replies = await read_all(self._client, ranges)
        return [
            (stream.encode(), reply)
            for stream, reply in zip(streams, replies, strict=True)
            if not isinstance(reply, Unreadable)
        ]

    async def acknowledge(self, through: dict[int, str]) -> None:
        keys = {self._keys.events(partition): event_id for partition, event_id in through.items()}
        await read_all(self._client, [("XTRIM", key, "MINID", _after(event_id)) for key, event_id in keys.items()])


def _after(event_id: str) -> str:
    ms, number = position(event_id)
    return f"{ms}-{number + 1}"


def _only_field(fields: Any) -> tuple[bytes, bytes]:
    """Return the name and value of an entry's field; after a redirection the fields are a dict, see `Redis.call`."""
    name, value = next(iter(fields.items())) if isinstance(fields, dict) else fields
    return bytes(name), bytes(value)
