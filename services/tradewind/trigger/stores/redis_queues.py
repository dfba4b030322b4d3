"""QueueStore in Redis: everything that can be done with triggers apart from delivering them."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tradewind.server.faults import Unreadable
from tradewind.server.partitions import PARTITIONS
from tradewind.server.redis.client import Client
from tradewind.server.redis.records import read_each, read_of
from tradewind.server.redis.script import Reply, Script
from tradewind.trigger.domain.claim import Firing
from tradewind.trigger.domain.event import Event, Outcome, firing_id, trigger_of
from tradewind.trigger.domain.policy import Policy
from tradewind.trigger.domain.trigger import Trigger
from tradewind.trigger.ports.queues import Counts, FiringOrder, Listener, Swept
from tradewind.trigger.ports.triggers import Page, Position
from tradewind.trigger.stores.chunks import chunks_by_partition
from tradewind.trigger.stores.keys import Keys
from tradewind.trigger.stores.reading import firing_of, read_page
from tradewind.trigger.stores.replies import CountsReply, Record, SweepReply
from tradewind.trigger.stores.schedule_codec import decode

_ITEMS_PER_SCRIPT = 100
_SCRIPTS_AT_ONCE = 4
"""How many scripts with firings of an event go to the store together: it runs them without a pause for others."""
_SWEEP_BATCH = 250
_READ_BATCH = 500

_PAUSE = Script(__name__, "pause_trigger", list[Record])
_RESUME = Script(__name__, "resume_trigger", list[Record])
_FIRE = Script(__name__, "fire_triggers", list[Outcome])
_REDRIVE = Script(__name__, "redrive_trigger", bool)
_SWEEP = Script(__name__, "sweep_index", SweepReply)
_COUNT = Script(__name__, "count_triggers", CountsReply)


class RedisQueueStore:
    """QueueStore over a Redis or Redis Cluster client, beside a RedisTriggerStore with the same keys."""

    def __init__(self, client: Client, keys: Keys, clock: Callable[[], int], policy: Policy | None = None) -> None:
        self._client = client
        self._keys = keys
        self._clock = clock
        self._policy_args = msgspec.to_builtins(policy or Policy())

    async def page_all(self, partition: int, queue: str, after: Position | None, limit: int) -> Page:
        keys = self._keys.of_queue(queue)
        return await read_page(self._client, keys, keys.all(partition), partition, after, limit, self._clock())

    async def page_dead(self, partition: int, queue: str, after: Position | None, limit: int) -> Page:
        keys = self._keys.of_queue(queue)
        return await read_page(self._client, keys, keys.dead(partition), partition, after, limit, self._clock())

    async def pause(self, partition: int, queue: str, trigger_id: str, note: str) -> Trigger | None:
        return await self._change(_PAUSE, partition, queue, trigger_id, note=note)

    async def resume(
        self, partition: int, queue: str, trigger_id: str, seen_ms: int, planned_ms: int | None
    ) -> Trigger | None:
        return await self._change(_RESUME, partition, queue, trigger_id, seen=seen_ms, planned=planned_ms)

    async def redrive(self, partition: int, queue: str, id: str) -> bool:
        keys = self._keys.of_queue(queue)
        args = self._common(partition, queue) | {"prefix": keys.trigger(partition, ""), "id": id}
        return await _REDRIVE(self._client, [keys.due(partition), keys.dead(partition)], args)

    async def listeners(self, name: str) -> Sequence[Listener]:
        pipeline = self._client.pipeline(transaction=False)
        for partition in range(PARTITIONS):
            pipeline.execute_command("HGETALL", self._keys.event(partition, name))
        found: list[Listener] = []
        for partition, fields in enumerate(await pipeline.execute()):
            for member, spec in fields.items():
                queue, _, trigger_id = member.decode().partition("/")
                found.append(Listener(partition, queue, trigger_id, decode(0, 0, spec.decode())))
        return found

    async def count_listeners(self, name: str) -> int:
        keys = [self._keys.event(partition, name) for partition in range(PARTITIONS)]
        # Callers that ask again and again mostly find no listener, and that takes one command.
        if not await self._client.exists(*keys):
            return 0
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.execute_command("HLEN", key)
        return sum(await pipeline.execute())

    async def fire(self, orders: Sequence[FiringOrder], event: Event, *, by_hand: bool = False) -> Sequence[Outcome]:
        numbered = ((order.partition, (at, order)) for at, order in enumerate(orders))
        chunks = chunks_by_partition(numbered, _ITEMS_PER_SCRIPT)
        calls = [
            (
                [self._keys.queues(partition)],
                self._common(partition, "")
                | {
                    "base": self._keys.base(partition),
                    "event": (event.id, event.name, event.payload_json),
                    "by_hand": by_hand,
                    "items": [
                        (one.queue, one.trigger_id, firing_id(one.trigger_id, event.id), one.start_ms)
                        for _, one in chunk
                    ],
                },
            )
            for partition, chunk in chunks
        ]
        outcomes, replies = [Outcome.GONE] * len(orders), list[list[Outcome] | Unreadable]()
        for first in range(0, len(calls), _SCRIPTS_AT_ONCE):
            replies += await _FIRE.each(self._client, calls[first : first + _SCRIPTS_AT_ONCE])
        for (_, chunk), answers in zip(chunks, replies, strict=True):
            if isinstance(answers, Unreadable):
                raise answers
            for (at, _), outcome in zip(chunk, answers, strict=True):
                outcomes[at] = outcome
        return outcomes

    async def firings(
        self, partition: int, queue: str, after: str, limit: int, trigger_id: str = ""
    ) -> tuple[Sequence[Firing], str]:
        key = self._keys.of_queue(queue).firings(partition)
        found: list[Firing] = []
        end = f"({after}" if after else "+"
        while True:
            with read_of(key):
                lines = await self._client.execute_command("XREVRANGE", key, end, "-", "COUNT", _READ_BATCH)
            for firing in map(firing_of, lines):
                if trigger_id in ("", firing.trigger_id, trigger_of(firing.trigger_id)):
                    if len(found) == limit:
                        return found, found[-1].position
                    found.append(firing)
            if len(lines) < _READ_BATCH:
                return found, ""
            end = f"({firing_of(lines[-1]).position}"

    async def counts(self, partition: int, queue: str) -> Counts:
        keys = self._keys.of_queue(queue)
        touched = [keys.due, keys.claimed, keys.dead, keys.all, keys.alarms]
        reply = await _COUNT(self._client, [key(partition) for key in touched], {"now_ms": self._clock()})
        return reply.counts()

    async def queues(self, partition: int) -> Sequence[str]:
        (names,) = await read_each(self._client, [self._keys.queues(partition)], "SMEMBERS")
        if isinstance(names, Unreadable):
            raise names
        return sorted(name.decode() for name in names)

    async def sweep(self, partition: int, queue: str, index: str, first: int) -> Swept:
        reply = await self.run(_SWEEP, partition, queue, index, first=first, limit=_SWEEP_BATCH)
        next_rank = first + reply.kept if reply.seen == _SWEEP_BATCH else None
        return Swept(tuple(reply.orphans), tuple(reply.mended), next_rank)

    async def run(self, script: Script[Reply], partition: int, queue: str, index: str, **args: object) -> Reply:
        """Run a script on an index of a queue, with its own args and those that all such scripts take."""
        keys = self._keys.of_queue(queue)
        more = [keys.due, keys.claimed, keys.alarms, keys.dead, keys.all, keys.firings, keys.queues, keys.receiver]
        touched = [keys.index(partition, index), *(key(partition) for key in more)]
        shared = self._common(partition, queue) | {"prefix": keys.trigger(partition, ""), "index": index}
        return await script(self._client, touched, shared | args)

    async def _change(
        self, script: Script[list[Record]], partition: int, queue: str, trigger_id: str, **args: object
    ) -> Trigger | None:
        keys = self._keys.of_queue(queue)
        touched = [keys.trigger(partition, trigger_id), keys.due(partition)]
        found = await script(self._client, touched, self._common(partition, queue) | {"id": trigger_id} | args)
        return found[0].trigger() if found else None

    def _common(self, partition: int, queue: str) -> dict[str, Any]:
        return {
            "now_ms": self._clock(),
            "queue": queue,
            "channel": self._keys.wake(partition),
            "events": self._keys.event(partition, ""),
            "policy": self._policy_args,
        }
