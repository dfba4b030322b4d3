"""Triggers in Redis: each change is one Lua script over the keys of one partition."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from redis.exceptions import NoScriptError

from tradewind.server.batching import Batcher
from tradewind.server.redis.client import Client
from tradewind.server.redis.script import Script
from tradewind.server.schedules.grids import LAST_MS
from tradewind.trigger.domain.claim import Ack, Extension, Firing, Nack, Subscription, Token
from tradewind.trigger.domain.errors import StaleEpoch
from tradewind.trigger.domain.policy import BATCH_BYTES, REAP_LIMIT, Policy
from tradewind.trigger.domain.trigger import Trigger, TriggerDraft
from tradewind.trigger.ports import ClaimOrder, Claims, DeadLetter, Heads, Page, Position, Settlement, Survey
from tradewind.trigger.stores.keys import Keys
from tradewind.trigger.stores.replies import (
    ClaimsReply,
    PageReply,
    Record,
    RemoveReply,
    SaveReply,
    SettleReply,
    SubscribeReply,
    SurveyReply,
)
from tradewind.trigger.stores.schedule_codec import encode

_ITEMS_PER_SCRIPT = 250
"""A script touches at most so many triggers, so that it holds the store up for a few milliseconds only."""

_SAVE = Script(__name__, "save_trigger", SaveReply)
_REMOVE = Script(__name__, "remove_trigger", RemoveReply)
_FIND = Script(__name__, "find_trigger", list[Record])
_PAGE = Script(__name__, "page_triggers", PageReply)
_SUBSCRIBE = Script(__name__, "subscribe_partition", SubscribeReply)
_CLAIM = Script(__name__, "claim_due", ClaimsReply)
_ACK = Script(__name__, "ack_claims", SettleReply)
_NACK = Script(__name__, "nack_claims", SettleReply)
_EXTEND = Script(__name__, "extend_claims", SettleReply)
_GIVE_BACK = Script(__name__, "give_back_claims", SettleReply)
_SURVEY = Script(__name__, "survey_partition", SurveyReply)

Answer = TypeVar("Answer")


class RedisTriggerStore:
    """TriggerStore and ClaimStore over a Redis or Redis Cluster client.

    `clock` tells scripts the time in milliseconds; 0 means the server's own. Lets redis-py's exceptions through.
    """

    def __init__(self, client: Client, keys: Keys, clock: Callable[[], int], policy: Policy | None = None) -> None:
        self._client = client
        self._keys = keys
        self._clock = clock
        self._policy = policy or Policy()
        self._policy_args = msgspec.to_builtins(self._policy)
        # Calls of many callers at a time share a round trip and a connection.
        self._saves = Batcher(partial(_SAVE.many, client), _ITEMS_PER_SCRIPT)
        self._removals = Batcher(partial(_REMOVE.many, client), _ITEMS_PER_SCRIPT)
        self._finds = Batcher(partial(_FIND.many, client), _ITEMS_PER_SCRIPT)

    async def save(self, partition: int, draft: TriggerDraft) -> Trigger:
        interval, anchor, spec = encode(draft.schedule)
        args = {
            "now_ms": self._clock(),
            "id": draft.id,
            "partition_key": draft.partition_key,
            "interval": interval,
            "anchor": anchor,
            "spec": spec,
            "jitter": draft.schedule.jitter_ms,
            "last": draft.schedule.last_ms,
            "most": draft.schedule.max_firings,
            "first": draft.schedule.first(await self._now_ms(partition) if draft.schedule.begins_now else 0),
            "payload": draft.payload_json,
            "epoch": draft.epoch,
            "channel": self._keys.wake(partition),
            "policy": self._policy_args,
        }
        reply = await self._saves.submit((self._keys_of(partition, draft.id), args))
        if reply.known is not None or reply.trigger is None:
            raise StaleEpoch(draft.id, draft.epoch, reply.known or 0)
        return reply.trigger.trigger()

    async def remove(self, partition: int, trigger_id: str, epoch: int) -> bool:
        args = {"now_ms": self._clock(), "id": trigger_id, "epoch": epoch, "policy": self._policy_args}
        reply = await self._removals.submit((self._keys_of(partition, trigger_id), args))
        if reply.known is not None:
            raise StaleEpoch(trigger_id, epoch, reply.known)
        return reply.removed

    async def find(self, partition: int, trigger_id: str) -> Trigger | None:
        keys = [self._keys.trigger(partition, trigger_id)]
        found = await self._finds.submit((keys, {"now_ms": self._clock(), "id": trigger_id}))
        return found[0].trigger() if found else None

    async def page_scheduled(self, partition: int, up_to_ms: int | None, after: Position | None, limit: int) -> Page:
        return await self._page(self._keys.due(partition), partition, up_to_ms, after, limit)

    async def page_claimed(self, partition: int, after: Position | None, limit: int) -> Page:
        return await self._page(self._keys.claimed(partition), partition, None, after, limit)

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> Sequence[Survey | int]:
        replies = await _SUBSCRIBE.many(self._client, [self._subscribe_call(one) for one in subscriptions])
        return [reply.survey.survey() if reply.survey else reply.known or 0 for reply in replies]

    async def claim_due(self, orders: Sequence[ClaimOrder]) -> Sequence[Claims]:
        replies = await _CLAIM.many(self._client, [self._claim_call(order) for order in orders])
        return [reply.answer(order.lease_ms) for order, reply in zip(orders, replies, strict=True)]

    async def ack(self, acks: Sequence[Ack], session: str) -> Settlement:
        items = [
            (
                ack.token.partition,
                (ack.token.trigger_id, ack.token.text, -1 if ack.next_ms is None else ack.next_ms, ack.finished),
            )
            for ack in acks
        ]
        return await self._settle(_ACK, items, session, lambda p: [self._keys.receiver(p), self._keys.firings(p)])

    async def nack(self, nacks: Sequence[Nack], session: str) -> Settlement:
        items = [
            (
                nack.token.partition,
                (
                    nack.token.trigger_id,
                    nack.token.text,
                    -1 if nack.retry_after_ms is None else nack.retry_after_ms,
                    nack.error,
                ),
            )
            for nack in nacks
        ]
        return await self._settle(
            _NACK, items, session, lambda p: [self._keys.receiver(p), self._keys.firings(p), self._keys.dead(p)]
        )

    async def extend(self, extensions: Sequence[Extension]) -> Settlement:
        items = [(one.token.partition, (one.token.trigger_id, one.token.text, one.lease_ms)) for one in extensions]
        return await self._settle(_EXTEND, items, "", lambda p: [])

    async def give_back(self, tokens: Sequence[Token], session: str) -> Settlement:
        items = [(token.partition, (token.trigger_id, token.text)) for token in tokens]
        return await self._settle(_GIVE_BACK, items, session, lambda p: [self._keys.receiver(p)])

    async def look(self, partitions: Sequence[int], survey: int) -> tuple[Mapping[int, int | None], Survey]:
        keys = [self._keys.due(survey), self._keys.claimed(survey)]
        args = {"now_ms": self._clock()}
        pipeline = self._client.pipeline(transaction=False)
        _SURVEY.queue(pipeline, keys, args)
        for partition in partitions:
            pipeline.execute_command("ZRANGE", self._keys.due(partition), 0, 0, "WITHSCORES")
        surveyed, *heads = await pipeline.execute(raise_on_error=False)
        if isinstance(surveyed, NoScriptError):
            reply = await _SURVEY(self._client, keys, args)
        else:
            reply = _SURVEY.decode(_unless_failed(surveyed))
        due = {partition: _score(_unless_failed(head)) for partition, head in zip(partitions, heads, strict=True)}
        return due, reply.survey()

    async def recent_firings(self, partition: int, limit: int) -> Sequence[Firing]:
        lines = await self._client.execute_command("XREVRANGE", self._keys.firings(partition), "+", "-", "COUNT", limit)
        return [_firing(fields) for _, fields in lines]

    async def _now_ms(self, partition: int) -> int:
        reply = await _SURVEY(
            self._client, [self._keys.due(partition), self._keys.claimed(partition)], {"now_ms": self._clock()}
        )
        return reply.now_us // 1000

    def _keys_of(self, partition: int, trigger_id: str) -> list[str]:
        keys = self._keys
        return [
            keys.trigger(partition, trigger_id),
            keys.removed(partition, trigger_id),
            keys.due(partition),
            keys.claimed(partition),
            keys.dead(partition),
        ]

    async def _page(self, key: str, partition: int, up_to_ms: int | None, after: Position | None, limit: int) -> Page:
        args = {
            "now_ms": self._clock(),
            "prefix": self._keys.trigger(partition, ""),
            "after_score": after.score if after else None,
            "after_id": after.id if after else None,
            "up_to": up_to_ms or None,
            "everything": up_to_ms is None,
            "limit": limit,
            "max_bytes": BATCH_BYTES,
        }
        return (await _PAGE(self._client, [key], args)).page()

    def _subscribe_call(self, subscription: Subscription) -> tuple[list[str], dict[str, Any]]:
        keys, partition = self._keys, subscription.partition
        return [keys.receiver(partition), keys.due(partition), keys.claimed(partition)], {
            "now_ms": self._clock(),
            "epoch": subscription.epoch,
            "session": subscription.session,
            "channel": keys.wake(partition),
        }

    def _claim_call(self, order: ClaimOrder) -> tuple[list[str], dict[str, Any]]:
        keys, partition = self._keys, order.subscription.partition
        touched = [
            keys.due(partition),
            keys.claimed(partition),
            keys.dead(partition),
            keys.receiver(partition),
            keys.firings(partition),
        ]
        return touched, {
            "now_ms": self._clock(),
            "prefix": keys.trigger(partition, ""),
            "partition": partition,
            "epoch": order.subscription.epoch,
            "session": order.subscription.session,
            "limit": min(order.limit, _ITEMS_PER_SCRIPT),
            "lease_ms": order.lease_ms,
            "nonce": order.nonce,
            "max_bytes": BATCH_BYTES,
            "reap": REAP_LIMIT,
            "policy": self._policy_args,
        }

    async def _settle(
        self,
        script: Script[SettleReply],
        items: Iterable[tuple[int, tuple[object, ...]]],
        session: str,
        more_keys: Callable[[int], list[str]],
    ) -> Settlement:
        by_partition: dict[int, list[tuple[object, ...]]] = {}
        for partition, item in items:
            by_partition.setdefault(partition, []).append(item)
        chunks = [
            (partition, of_one[start : start + _ITEMS_PER_SCRIPT])
            for partition, of_one in by_partition.items()
            for start in range(0, len(of_one), _ITEMS_PER_SCRIPT)
        ]
        calls = [
            (
                [self._keys.due(partition), self._keys.claimed(partition), *more_keys(partition)],
                {
                    "now_ms": self._clock(),
                    "prefix": self._keys.trigger(partition, ""),
                    "channel": self._keys.wake(partition),
                    "session": session,
                    "last_ms": LAST_MS,
                    "policy": self._policy_args,
                    "items": chunk,
                },
            )
            for partition, chunk in chunks
        ]
        lost: set[str] = set()
        heads: dict[int, Heads] = {}
        dead: list[DeadLetter] = []
        for (partition, _), reply in zip(chunks, await script.many(self._client, calls), strict=True):
            lost.update(reply.lost)
            heads[partition] = Heads(reply.due, reply.lapse)
            dead.extend(one.letter() for one in reply.dead)
        return Settlement(frozenset(lost), heads, tuple(dead))


def _unless_failed(result: Answer | Exception) -> Answer:
    if isinstance(result, Exception):
        raise result
    return result


def _score(entry: Sequence[bytes]) -> int | None:
    return int(float(entry[1])) if entry else None


def _firing(fields: Mapping[bytes, bytes]) -> Firing:
    return Firing(
        fields[b"trigger_id"].decode(),
        int(fields[b"planned"]),
        int(fields[b"attempt"]),
        fields[b"outcome"].decode(),
        int(fields[b"at"]),
    )
