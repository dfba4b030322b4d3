"""Triggers in Redis: each change is one Lua script over the keys of one partition."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import msgspec

from tradewind.server.batching import Batcher
from tradewind.server.faults import Unreadable
from tradewind.server.reading import UnreadableLog
from tradewind.server.redis.client import Client
from tradewind.server.redis.records import read_each
from tradewind.server.redis.script import Reply, Script
from tradewind.trigger.domain.claim import Ack, Extension, Nack, Subscription, Token
from tradewind.trigger.domain.errors import QueueFull, StaleEpoch
from tradewind.trigger.domain.lead import LEAD_PER_TRIGGER_MS, MIN_LEAD_MS
from tradewind.trigger.domain.policy import BATCH_BYTES, FORMER_CLAIMS, FORMER_LEASE_MS, REAP_LIMIT, Policy
from tradewind.trigger.domain.trigger import Trigger, TriggerDraft
from tradewind.trigger.ports.claims import ClaimOrder, Claims, DeadLetter, Heads, Settlement, Survey
from tradewind.trigger.ports.triggers import Page, Position
from tradewind.trigger.stores.chunks import chunks_by_partition
from tradewind.trigger.stores.keys import Keys
from tradewind.trigger.stores.reading import read_page
from tradewind.trigger.stores.replies import (
    ClaimsReply,
    Record,
    RemoveReply,
    SaveReply,
    SettleReply,
    SubscribeReply,
    SurveyReply,
)
from tradewind.trigger.stores.schedule_codec import encode

_ITEMS_PER_SCRIPT = 250
"""How many triggers a script touches at most, so that it blocks the store for a few milliseconds only."""

_SAVE = Script(__name__, "save_trigger", SaveReply)
_REMOVE = Script(__name__, "remove_trigger", RemoveReply)
_FIND = Script(__name__, "find_trigger", list[Record])
_SUBSCRIBE = Script(__name__, "subscribe_partition", SubscribeReply)
_CLAIM = Script(__name__, "claim_due", ClaimsReply)
_ACK = Script(__name__, "ack_claims", SettleReply)
_NACK = Script(__name__, "nack_claims", SettleReply)
_EXTEND = Script(__name__, "extend_claims", SettleReply)
_GIVE_BACK = Script(__name__, "give_back_claims", SettleReply)
_WITHDRAW = Script(__name__, "withdraw_order", list[tuple[int, str]])
_SURVEY = Script(__name__, "survey_partition", SurveyReply)


class RedisTriggerStore:
    """TriggerStore and ClaimStore over a Redis or Redis Cluster client.

    `clock` returns the time for scripts in milliseconds; 0 means the server's own. The triggers are those of `queue`,
    or of the flows when that is empty. Exceptions of redis-py pass through.
    """

    def __init__(self, client: Client, keys: Keys, clock: Callable[[], int], policy: Policy | None = None) -> None:
        self.queue = ""
        self._client = client
        self._keys = keys
        self.clock = clock
        self._policy = policy or Policy()
        self._policy_args = msgspec.to_builtins(self._policy)
        # Concurrent calls share a round trip and a connection.
        self._saves = Batcher(partial(_SAVE.each, client), _ITEMS_PER_SCRIPT)
        self._removals = Batcher(partial(_REMOVE.many, client), _ITEMS_PER_SCRIPT)
        self._finds = Batcher(partial(_FIND.many, client), _ITEMS_PER_SCRIPT)
        self._unreadable = UnreadableLog(__name__)

    def of_queue(self, queue: str) -> "RedisTriggerStore":
        """Return the store for the triggers of a queue, over the same connection."""
        other = copy(self)
        other.queue, other._keys = queue, self._keys.of_queue(queue)
        return other

    async def save(self, partition: int, draft: TriggerDraft) -> Trigger:
        interval, anchor, spec = encode(draft.schedule)
        begins_ms = (await self._survey(partition)).now_us // 1000 if draft.schedule.begins_now else 0
        args = {
            "now_ms": self.clock(),
            "id": draft.id,
            "partition_key": draft.partition_key,
            "interval": interval,
            "anchor": anchor,
            "spec": spec,
            "jitter": draft.schedule.jitter_ms,
            "last": draft.schedule.last_ms,
            "most": draft.schedule.max_firings,
            "first": draft.schedule.first(begins_ms),
            "payload": draft.payload_json,
            "epoch": draft.epoch,
            "channel": self._keys.wake(partition),
            "queue": self.queue,
            "events": self._keys.event(partition, ""),
            "event": draft.schedule.event.name if draft.schedule.event else "",
            "policy": self._policy_args,
        }
        keys = [*self._keys_of(partition, draft.id), self._keys.queues(partition), self._keys.firings(partition)]
        reply = await self._saves.submit((keys, args))
        if isinstance(reply, Unreadable):
            raise reply
        if reply.full is not None:
            raise self._full_error(reply.full, args["event"])
        if reply.known is not None:
            raise StaleEpoch(draft.id, draft.epoch, reply.known)
        assert reply.trigger is not None, "the script returns one of the three"
        return reply.trigger.trigger()

    async def remove(self, partition: int, trigger_id: str, epoch: int) -> bool:
        args = {
            "now_ms": self.clock(),
            "id": trigger_id,
            "epoch": epoch,
            "queue": self.queue,
            "events": self._keys.event(partition, ""),
            "policy": self._policy_args,
        }
        reply = await self._removals.submit((self._keys_of(partition, trigger_id), args))
        if reply.known is not None:
            raise StaleEpoch(trigger_id, epoch, reply.known)
        return reply.removed

    async def find(self, partition: int, trigger_id: str) -> Trigger | None:
        args = {
            "now_ms": self.clock(),
            "id": trigger_id,
            "queue": self.queue,
            "events": self._keys.event(partition, ""),
        }
        found = await self._finds.submit(([self._keys.trigger(partition, trigger_id)], args))
        return found[0].trigger() if found else None

    async def page_scheduled(self, partition: int, up_to_ms: int | None, after: Position | None, limit: int) -> Page:
        return await self._page(self._keys.due(partition), partition, up_to_ms, after, limit)

    async def page_claimed(self, partition: int, after: Position | None, limit: int) -> Page:
        return await self._page(self._keys.claimed(partition), partition, None, after, limit)

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> Sequence[Survey | int | None]:
        replies = await self._each(_SUBSCRIBE, [self._subscribe_call(one) for one in subscriptions])
        return [None if reply is None else reply.answer() for reply in replies]

    async def claim_due(self, orders: Sequence[ClaimOrder]) -> Sequence[Claims]:
        replies = await self._each(_CLAIM, [self._claim_call(order) for order in orders])
        return [
            Claims(None, readable=False) if reply is None else reply.answer(order.lease_ms)
            for order, reply in zip(orders, replies, strict=True)
        ]

    async def ack(self, acks: Sequence[Ack], session: str) -> Settlement:
        items = [
            (
                ack.token.partition,
                (ack.token.trigger_id, ack.token.text, -1 if ack.next_ms is None else ack.next_ms, ack.finished),
            )
            for ack in acks
        ]
        return await self._settle(_ACK, items, session)

    async def nack(self, nacks: Sequence[Nack], session: str) -> Settlement:
        items = [
            (
                nack.token.partition,
                (
                    nack.token.trigger_id,
                    nack.token.text,
                    -1 if nack.retry_after_ms is None else nack.retry_after_ms,
                    nack.error,
                    nack.postponed,
                ),
            )
            for nack in nacks
        ]
        return await self._settle(_NACK, items, session)

    async def extend(self, extensions: Sequence[Extension]) -> Settlement:
        items = [(one.token.partition, (one.token.trigger_id, one.token.text, one.lease_ms)) for one in extensions]
        return await self._settle(_EXTEND, items, "")

    async def give_back(self, tokens: Sequence[Token], session: str) -> Settlement:
        items = [(token.partition, (token.trigger_id, token.text)) for token in tokens]
        return await self._settle(_GIVE_BACK, items, session)

    async def withdraw(self, orders: Sequence[ClaimOrder]) -> None:
        left: list[tuple[ClaimOrder, tuple[int, str] | None]] = [(order, None) for order in orders]
        while left:
            further = await self._each(_WITHDRAW, [self._withdraw_call(*each) for each in left])
            left = [(order, claim) for (order, _), found in zip(left, further, strict=True) for claim in found or ()]

    async def poll(self, partitions: Sequence[int], survey: int) -> tuple[Mapping[int, int | None], Survey]:
        reply, heads = await asyncio.gather(
            self._survey(survey),
            read_each(self._client, list(map(self._keys.due, partitions)), "ZRANGE", 0, 0, "WITHSCORES"),
        )
        readable = zip(partitions, map(self._readable, heads), strict=True)
        return {partition: _score(entry) for partition, entry in readable if entry is not None}, reply.survey()

    async def _each(
        self, script: Script[Reply], calls: Sequence[tuple[Sequence[str], object]]
    ) -> Sequence[Reply | None]:
        """Run a script once for each partition; None stands for one whose index or receiver cannot be read."""
        return [self._readable(reply) for reply in await script.each(self._client, calls)]

    def _readable(self, reply: Reply | Unreadable) -> Reply | None:
        if not isinstance(reply, Unreadable):
            return reply
        self._unreadable.note(reply)
        return None

    async def _survey(self, partition: int) -> SurveyReply:
        keys = [self._keys.due(partition), self._keys.claimed(partition)]
        return await _SURVEY(self._client, keys, {"now_ms": self.clock()})

    def _keys_of(self, partition: int, trigger_id: str) -> list[str]:
        keys = self._keys
        return [
            keys.trigger(partition, trigger_id),
            keys.removed(partition, trigger_id),
            keys.due(partition),
            keys.claimed(partition),
            keys.dead(partition),
            keys.all(partition),
        ]

    def _full_error(self, cap: str, event: str) -> QueueFull:
        if cap == "queue":
            return QueueFull.of_triggers(self.queue, self._policy.max_queue_triggers)
        return QueueFull.of_listeners(event, self._policy.max_listeners)

    async def _page(self, key: str, partition: int, up_to_ms: int | None, after: Position | None, limit: int) -> Page:
        return await read_page(self._client, self._keys, key, partition, after, limit, self.clock(), up_to_ms)

    def _subscribe_call(self, subscription: Subscription) -> tuple[list[str], dict[str, Any]]:
        keys, partition = self._keys, subscription.partition
        return [keys.receiver(partition), keys.due(partition), keys.claimed(partition)], {
            "now_ms": self.clock(),
            "prefix": keys.trigger(partition, ""),
            "epoch": subscription.epoch,
            "session": subscription.session,
            "channel": keys.wake(partition),
            "give_back": REAP_LIMIT,
            "former_claims": FORMER_CLAIMS,
            "former_lease_ms": FORMER_LEASE_MS,
        }

    def _claim_call(self, order: ClaimOrder) -> tuple[list[str], dict[str, Any]]:
        keys, partition = self._keys, order.subscription.partition
        touched = [
            keys.due(partition),
            keys.claimed(partition),
            keys.dead(partition),
            keys.receiver(partition),
            keys.firings(partition),
            keys.alarms(partition),
        ]
        return touched, {
            "now_ms": self.clock(),
            "prefix": keys.trigger(partition, ""),
            "all": keys.all(partition),
            "channel": keys.wake(partition),
            "queue": self.queue,
            "partition": partition,
            "epoch": order.subscription.epoch,
            "session": order.subscription.session,
            "limit": min(order.limit, _ITEMS_PER_SCRIPT),
            "lease_ms": order.lease_ms,
            "nonce": order.nonce,
            "lead": {
                "max_ms": order.lead.max_ms,
                "shares": order.lead.shares,
                "min_ms": MIN_LEAD_MS,
                "each_ms": LEAD_PER_TRIGGER_MS,
            },
            "max_bytes": BATCH_BYTES,
            "reap": REAP_LIMIT,
            "policy": self._policy_args,
        }

    def _withdraw_call(self, order: ClaimOrder, first: tuple[int, str] | None) -> tuple[list[str], dict[str, Any]]:
        keys, partition = self._keys, order.subscription.partition
        return [keys.due(partition), keys.claimed(partition)], {
            "now_ms": self.clock(),
            "prefix": keys.trigger(partition, ""),
            "channel": keys.wake(partition),
            "queue": self.queue,
            "nonce": order.nonce,
            "first": first,
            "limit": _ITEMS_PER_SCRIPT,
        }

    async def _settle(
        self, script: Script[SettleReply], items: Iterable[tuple[int, tuple[object, ...]]], session: str
    ) -> Settlement:
        keys = self._keys
        touched = [keys.due, keys.claimed, keys.receiver, keys.firings, keys.dead]
        chunks = chunks_by_partition(items, _ITEMS_PER_SCRIPT)
        calls = [
            (
                [key(partition) for key in touched],
                {
                    "now_ms": self.clock(),
                    "prefix": keys.trigger(partition, ""),
                    "removed": keys.removed(partition, ""),
                    "events": keys.event(partition, ""),
                    "all": keys.all(partition),
                    "channel": keys.wake(partition),
                    "queue": self.queue,
                    "session": session,
                    "policy": self._policy_args,
                    "items": chunk,
                },
            )
            for partition, chunk in chunks
        ]
        lost: set[str] = set()
        heads: dict[int, Heads] = {}
        dead: list[DeadLetter] = []
        replies = await self._each(script, calls)
        for (partition, _), reply in zip(chunks, replies, strict=True):
            if reply is None:
                continue
            lost.update(reply.lost)
            heads[partition] = Heads(reply.due, reply.lapse)
            dead.extend(one.letter() for one in reply.dead)
        return Settlement(frozenset(lost), heads, tuple(dead))


def _score(entry: Sequence[bytes]) -> int | None:
    return int(float(entry[1])) if entry else None
