"""What all calls of the scheduler's scripts have in common."""

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from redis.asyncio import RedisCluster

from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.stores.keys import Keys
from tradewind.server.clock import Clock, SystemClock
from tradewind.server.faults import Unreadable
from tradewind.server.partitions import partition_of
from tradewind.server.reading import UnreadableLog, reading
from tradewind.server.redis.client import Client
from tradewind.server.redis.records import read_each, read_of
from tradewind.server.redis.script import Script

Reply = TypeVar("Reply")
Found = TypeVar("Found")
Entry = TypeVar("Entry")


class Replies(msgspec.Struct, Generic[Reply], array_like=True):
    """What `answers_of` in `partition.lua` returns; `unreadable` pairs flows with why an item about them has failed."""

    at_ms: int
    groups: list[list[Reply]]
    unreadable: list[tuple[str, str]]


_encode = msgspec.msgpack.Encoder().encode

ITEMS_AT_ONCE = 100
"""How many items one call of a script takes; such a call blocks the store for about 4 ms."""
RETENTION_MS = 7 * 24 * 3600 * 1000
"""How long an ended run stays on record."""
TOMBSTONE_MS = 3600 * 1000
"""How long a deleted flow's schedule epoch is remembered."""
PART_OF_ANOTHER_TYPE = "it, or a part of it, is of another type"


def script(name: str, reply: type[Reply]) -> Script[Reply]:
    """Return the script `lua/<name>.lua`."""
    return Script("tradewind.scheduler.stores", name, reply)


def request_args(request: RememberedRequest | None) -> dict[str, Any]:
    """Return the arguments of a script that remembers its answer to a client's request, empty and 0 for none."""
    if request is None:
        return {"request": "", "payload": "", "request_ms": 0}
    return {"request": request.name, "payload": request.payload, "request_ms": request.lifetime_ms}


class Scripted:
    """What a store needs to run scripts: a client, the table of keys and a clock.

    `store_clock` gives the time to Python code when `clock` returns 0, which leaves the time to the store.
    """

    def __init__(self, client: Client, keys: Keys, clock: Callable[[], int], store_clock: Clock | None = None) -> None:
        self.client = client
        self.keys = keys
        self.clock = clock
        self._store_clock = store_clock or SystemClock()
        self._one_slot = isinstance(client, RedisCluster)
        self._unreadable = UnreadableLog(__name__)

    def now_ms(self) -> int:
        """Return the time that a script would see."""
        return self.clock() or self._store_clock.now_ms()

    def args(self, partition: int, epoch: int = 0, **more: Any) -> dict[str, Any]:
        """Return the arguments that every script for one partition takes, and `more`."""
        return {"base": self.keys.base(partition), "epoch": epoch, "now": self.clock(), **more}

    async def call_in_groups(
        self,
        script: Script[Replies[Reply]],
        items: Sequence[Sequence[object]],
        flow_ids: Sequence[str],
        epochs: Epochs,
        **more: Any,
    ) -> list[tuple[int, Reply] | None]:
        """Run a script over items in one round trip; each item holds the values for one of the flows.

        All items have the same length. Returns, for each item in order, the time of the call and the answer; None for
        items whose partition has a later owner. An answer whose outcome is `unreadable` is logged here.
        """
        calls = list(_split_into_calls(map(partition_of, flow_ids), self._one_slot))
        blobs: list[tuple[Sequence[str], dict[str, Any]]] = []
        for groups in calls:
            keys: list[str] = []
            group_args: list[object] = []
            for partition, indexes in groups:
                keys.append(self.keys.owner(partition))
                base = self.keys.base(partition)
                group_args += (base, epochs.get(partition, 0), *_pack_items([items[index] for index in indexes]))
            blobs.append((keys, {"now": self.clock(), "cluster": self._one_slot, "groups": group_args, **more}))
        replies = [await script(self.client, *blobs[0])] if len(blobs) == 1 else await script.many(self.client, blobs)
        answers: list[tuple[int, Reply] | None] = [None] * len(items)
        for groups, reply in zip(calls, replies, strict=True):
            for (_, indexes), found in zip(groups, reply.groups, strict=True):
                for index, answer in zip(indexes, found, strict=False):
                    answers[index] = reply.at_ms, answer
            self.note_unreadable(reply.unreadable)
        return answers

    def note_unreadable(self, flows: Iterable[tuple[str, str]]) -> None:
        """Log flows that a script could not read, each given with why."""
        for flow_id, why in flows:
            self._unreadable.note(
                Unreadable(self.keys.flow(flow_id), f"a script fails on it, or on a part of it: {why}")
            )

    async def first_of(
        self, sorted_sets: Sequence[str], count: int, parse: Callable[[str, int], Found], *, up_to: float = math.inf
    ) -> list[list[Found]]:
        """Return up to `count` members of each of these sorted sets, parsed from their text and score.

        Members that score more than `up_to` are left out. Takes a single command if none of the sets exists, as when
        the system is idle. One whose key is of another type is logged, and has none; so is a member that cannot be
        parsed, and the next one takes its place.
        """
        if not sorted_sets or not (self._one_slot or await self.client.exists(*sorted_sets)):
            return [[] for _ in sorted_sets]

        async def read(keys: Sequence[str], at: int) -> list[list[tuple[bytes, bytes]]]:
            bounds = "-inf", up_to, "LIMIT", at, count, "WITHSCORES"
            replies = await read_each(self.client, keys, "ZRANGEBYSCORE", *bounds)
            return [self._pairs(reply) for reply in replies]

        async def read_on(key: str, at: int) -> list[tuple[bytes, bytes]]:
            return (await read([key], at))[0]

        def name(key: str, pairs: Sequence[tuple[bytes, bytes]]) -> list[Found]:
            found: list[Found] = []
            for member, score in pairs:
                found += self.named_by(key, [member], partial(_scored, parse, score))
            return found

        first = await read(sorted_sets, 0)
        return [
            await named_first(pairs, count, partial(name, key), partial(read_on, key))
            for key, pairs in zip(sorted_sets, first, strict=True)
        ]

    def _pairs(self, reply: Any) -> list[tuple[bytes, bytes]]:
        """Return the members and scores in a reply; none of a key of another type, which is logged."""
        if isinstance(reply, Unreadable):
            self._unreadable.note(reply)
            return []
        return list(zip(reply[::2], reply[1::2], strict=True))

    def named_by(self, index: str, members: Iterable[bytes], parse: Callable[[str], Found]) -> list[Found]:
        """Return what members of an index name; one that names nothing is logged, and left out."""
        found: list[Found] = []
        for member in members:
            try:
                with reading(f"{index} {member.decode(errors='replace')}"):
                    found.append(parse(member.decode()))
            except Unreadable as error:
                self._unreadable.note(error)
        return found

    def runs_of(self, flow_id: str, names: Iterable[bytes]) -> list[RunName]:
        """Return the runs in names from a flow's index of cycles."""
        return self.named_by(self.keys.cycles(flow_id), names, lambda name: RunName.parse(f"{flow_id}:{name}"))

    async def call_for_partition(
        self, script: Script[Reply], partition: int, *keys: str, epoch: int = 0, **more: Any
    ) -> Reply:
        """Run a script whose first key is that of the partition's owner."""
        return await script(self.client, (self.keys.owner(partition), *keys), self.args(partition, epoch, **more))

    async def call_for_flow(self, script: Script[Reply], flow_id: str, *keys: str, **more: Any) -> Reply:
        """Run a script whose first keys are those of the owner of the flow's partition and of the flow.

        Raises Unreadable.
        """
        flow = self.keys.flow(flow_id)
        with read_of(flow, PART_OF_ANOTHER_TYPE):
            return await self.call_for_partition(script, partition_of(flow_id), flow, *keys, flow_id=flow_id, **more)


async def named_first(
    entries: Sequence[Entry],
    limit: int,
    name: Callable[[Sequence[Entry]], list[Found]],
    read_on: Callable[[int], Awaitable[Sequence[Entry]]],
) -> list[Found]:
    """Return what up to `limit` entries of an index name, beginning with those that have been read.

    `name` leaves out entries that name nothing; then it reads on, `limit` entries at a time.
    """
    found, at = name(entries), 0
    while len(found) < limit and len(entries) == limit:
        at += limit
        entries = await read_on(at)
        found += name(entries)
    return found[:limit]


def _scored(parse: Callable[[str, int], Found], score: bytes, member: str) -> Found:
    return parse(member, int(float(score)))


def _pack_items(items: Sequence[Sequence[object]]) -> tuple[int, msgspec.Raw]:
    """Return items of up to 15 values each as text that scripts read item by item, and the offset of the first item."""
    packed = _encode(items)
    # Scripts do not know MessagePack's type for bytes, so a header for text, with 4 bytes of length, is put in front.
    return 1 if len(items) < 16 else 3, msgspec.Raw(b"\xdb" + len(packed).to_bytes(4, "big") + packed)


_Groups: TypeAlias = list[tuple[int, list[int]]]
"""Indexes of items by partition."""


def _split_into_calls(partitions: Iterable[int], one_slot: bool) -> Iterator[_Groups]:
    """Yield the groups of each call: in a cluster, each partition has its own slot, and a script runs in one slot."""
    groups: _Groups = []
    open_groups: dict[int, list[int]] = {}
    for index, partition in enumerate(partitions):
        indexes = open_groups.get(partition)
        if indexes is None or len(indexes) == ITEMS_AT_ONCE:
            indexes = open_groups[partition] = []
            groups.append((partition, indexes))
        indexes.append(index)
    call: _Groups = []
    size = 0
    for group in groups:
        if call and (one_slot or size + len(group[1]) > ITEMS_AT_ONCE):
            yield call
            call, size = [], 0
        call.append(group)
        size += len(group[1])
    if call:
        yield call
