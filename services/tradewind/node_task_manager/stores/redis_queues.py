"""Counting the queues of one shard in Redis."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

from tradewind.node_task_manager.ports.reading import Queue
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.redis.client import Client

_PIECE = 500


class RedisQueueReader:
    """A QueueReader; only the totals are stored, so no other count can drift."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def queues(self) -> list[Queue]:
        types = _texts(await self._client.zrange(self._keys.ready_types(), 0, -1))
        rings = await self._in_pipelines([("ZRANGE", self._keys.ring(node_type), 0, -1) for node_type in types])
        members = {(node_type, user) for node_type, ring in zip(types, rings, strict=True) for user in _texts(ring)}
        for parked in _texts(await self._client.zrange(self._keys.parked(), 0, -1)):
            user, _, node_type = parked.partition(":")
            members.add((node_type, user))
        held_back = await self._held_back()
        named = sorted(members | held_back.keys())
        keys = [self._keys.ready(node_type, user) for node_type, user in named]
        counts = await self._in_pipelines([("ZCARD", key) for key in keys])
        firsts = await self._in_pipelines([("ZRANGE", key, 0, 0) for key in keys])
        return [
            Queue(*name, int(count), first[0].decode() if first else "", held_back[name])
            for name, count, first in zip(named, counts, firsts, strict=True)
            if count or held_back[name]
        ]

    async def _held_back(self) -> Counter[tuple[str, str]]:
        """Return how many node tasks limits hold back, by type and user."""
        groups = [name.partition("|")[2] for name in _texts(await self._client.zrange(self._keys.blocked_of(), 0, -1))]
        counts = await self._in_pipelines([("ZCARD", self._keys.blocked(group)) for group in groups])
        found: Counter[tuple[str, str]] = Counter()
        for group, count in zip(groups, counts, strict=True):
            node_type, user, _ = group.rpartition("|")[2].split(":")
            found[node_type, user] += int(count)
        return found

    async def running(self, limit: int) -> tuple[int, list[str]]:
        pipeline = self._client.pipeline(transaction=False)
        pipeline.execute_command("ZCARD", self._keys.inflight())
        pipeline.execute_command("ZRANGE", self._keys.inflight(), 0, limit - 1)
        count, ids = await pipeline.execute()
        return int(count), sorted(_texts(ids))

    async def held(self, limits: Sequence[str]) -> list[int]:
        commands: list[tuple[str, ...]] = []
        for limit in limits:
            kind, _, rest = limit.partition(":")
            if kind == "rate":
                commands.append(("GET", self._keys.bucket(rest)))
            else:
                commands.append(("ZCARD", self._keys.inflight() if kind == "running" else self._keys.slots(limit)))
        counts = [int(count or 0) for count in await self._in_pipelines(commands)]
        if not any(limit.startswith("rate:") for limit in limits):
            return counts
        seconds, microseconds = (await self._in_pipelines([("TIME",)]))[0]
        now_us = int(seconds) * 1_000_000 + int(microseconds)
        return [
            max(0, count - now_us) if limit.startswith("rate:") else count
            for limit, count in zip(limits, counts, strict=True)
        ]

    async def totals(self) -> dict[str, int]:
        counts = await self._client.hgetall(self._keys.totals())
        return {name.decode(): int(count) for name, count in counts.items()}

    async def cleaned(self) -> dict[str, int]:
        counts = await self._client.hgetall(self._keys.cleaned())
        return {name: int(counts.get(name.encode(), 0)) for name in ("runs", "node_tasks", "entries")}

    async def _in_pipelines(self, commands: Sequence[tuple[str | int, ...]]) -> list[Any]:
        answers: list[Any] = []
        rest = iter(commands)
        while piece := list(islice(rest, _PIECE)):
            pipeline = self._client.pipeline(transaction=False)
            for command in piece:
                pipeline.execute_command(*command)
            answers += await pipeline.execute()
        return answers


def _texts(members: Sequence[bytes]) -> list[str]:
    return [member.decode() for member in members]
