"""Counting the queues of one shard in Redis."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

from tradewind.node_task_manager.ports.reading import Holders, Place, Queue
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.redis.client import Client
from tradewind.server.redis.script import Script

_COUNT = Script(__name__, "count_queues", list[int])
_COUNT_RUNNING = Script(__name__, "count_running", list[tuple[str, str, int]])
_GROUP = re.compile(r"[^|]*\|([^|]*\|([^:|]+):([^:|]+):[0-9.]+)")
"""An entry of the index of groups that limits hold back: `<user>|<limit>|<type>:<user>:<most>`."""
_PIECE = 500
_QUEUES = 250
"""How many queues one script counts, which takes the store some 2 ms."""
_RUNNING = 100
"""How many running node tasks one script counts."""


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
        counts = await self._counts([f"{node_type}:{user}" for node_type, user in named])
        return [
            Queue(*name, count, ready_at, held_back[name])
            for name, (count, ready_at) in zip(named, counts, strict=True)
            if count or held_back[name]
        ]

    async def _counts(self, queues: Sequence[str]) -> list[tuple[int, int]]:
        """Return how many node tasks stand in each queue, and when the one that is next became ready."""
        found: list[int] = []
        for at in range(0, len(queues), _QUEUES):
            args = {"base": self._keys.base, "queues": queues[at : at + _QUEUES]}
            found += await _COUNT(self._client, [self._keys.inflight()], args)
        return list(zip(found[::2], found[1::2], strict=True))

    async def _held_back(self) -> Counter[tuple[str, str]]:
        """Return how many node tasks limits hold back, by type and user."""
        named = map(_GROUP.fullmatch, _texts(await self._client.zrange(self._keys.blocked_of(), 0, -1)))
        # What else somebody has put there is left to the doctor.
        groups = [group.groups() for group in named if group is not None]
        counts = await self._in_pipelines([("ZCARD", self._keys.blocked(name)) for name, _, _ in groups])
        found: Counter[tuple[str, str]] = Counter()
        for (_, node_type, user), count in zip(groups, counts, strict=True):
            found[node_type, user] += int(count)
        return found

    async def running(self, limit: int) -> tuple[int, Counter[tuple[str, str]]]:
        pipeline = self._client.pipeline(transaction=False)
        pipeline.execute_command("ZCARD", self._keys.inflight())
        pipeline.execute_command("ZRANGE", self._keys.inflight(), 0, limit - 1)
        count, members = await pipeline.execute()
        # Those of one run come one after another: a script reads the component that they belong to once.
        ids = sorted(_texts(members))
        found: Counter[tuple[str, str]] = Counter()
        for at in range(0, len(ids), _RUNNING):
            args = {"base": self._keys.base, "task_ids": ids[at : at + _RUNNING]}
            for node_type, user, some in await _COUNT_RUNNING(self._client, [self._keys.inflight()], args):
                found[node_type, user] += some
        return int(count), found

    async def held(self, limits: Sequence[str]) -> list[int]:
        buckets = [_bucket_of(limit) for limit in limits]
        commands = [
            ("GET", self._keys.bucket(bucket)) if bucket else ("ZCARD", self._holders_of(limit))
            for limit, bucket in zip(limits, buckets, strict=True)
        ]
        *found, (seconds, microseconds) = await self._in_pipelines([*commands, ("TIME",)])
        now_us = int(seconds) * 1_000_000 + int(microseconds)
        return [
            max(0, int(number or 0) - now_us) if bucket else int(number)
            for number, bucket in zip(found, buckets, strict=True)
        ]

    async def holders(self, limit: str, most: int) -> Holders:
        key = self._holders_of(limit)
        count, ids = await self._in_pipelines(
            [("ZCARD", key), ("ZRANGE", key, "-inf", "+inf", "BYSCORE", "LIMIT", 0, most)]
        )
        return Holders(int(count), tuple(_texts(ids)))

    async def place(self, node_type: str, user_id: str, task_id: str) -> Place:
        queue = self._keys.ready(node_type, user_id)
        rank, queued, users = await self._in_pipelines(
            [("ZRANK", queue, task_id), ("ZCARD", queue), ("ZCARD", self._keys.ring(node_type))]
        )
        return Place(-1 if rank is None else int(rank), int(queued), max(0, int(users) - 1))

    def _holders_of(self, limit: str) -> str:
        return self._keys.inflight() if limit == "running" else self._keys.slots(limit)

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


def _bucket_of(limit: str) -> str:
    """Return the name of the bucket of tokens of a limit, "" for one that bounds how many run at once."""
    kind, _, rest = limit.partition(":")
    return rest if kind in ("rate", "pace") else ""


def _texts(members: Sequence[bytes]) -> list[str]:
    return [member.decode() for member in members]
