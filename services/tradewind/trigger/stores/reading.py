"""Reads indexes and histories in Redis."""

from collections.abc import Mapping
from typing import Any

from tradewind.server.redis.client import Client
from tradewind.server.redis.script import Script
from tradewind.trigger.domain.claim import Firing
from tradewind.trigger.domain.policy import BATCH_BYTES
from tradewind.trigger.ports.triggers import Page, Position
from tradewind.trigger.stores.keys import Keys
from tradewind.trigger.stores.replies import PageReply

_PAGE = Script(__name__, "page_triggers", PageReply)


async def read_page(
    client: Client,
    keys: Keys,
    index: str,
    partition: int,
    after: Position | None,
    limit: int,
    now_ms: int,
    up_to_ms: int | None = None,
) -> Page:
    """Return a page of an index, up to the score `up_to_ms` (0: now; None: no bound)."""
    args: dict[str, Any] = {
        "now_ms": now_ms,
        "prefix": keys.trigger(partition, ""),
        "after_score": after.score if after else None,
        "after_id": after.id if after else None,
        "up_to": up_to_ms or None,
        "everything": up_to_ms is None,
        "limit": limit,
        "max_bytes": BATCH_BYTES,
    }
    return (await _PAGE(client, [index], args)).page()


def firing_of(line: tuple[bytes, Mapping[bytes, bytes]]) -> Firing:
    """Return the firing in a line of the fire history."""
    position, fields = line
    return Firing(
        fields[b"trigger_id"].decode(),
        int(fields[b"planned"]),
        int(fields[b"attempt"]),
        fields[b"outcome"].decode(),
        int(fields[b"at"]),
        fields.get(b"error", b"").decode(),
        fields.get(b"event_id", b"").decode(),
        position.decode(),
    )
