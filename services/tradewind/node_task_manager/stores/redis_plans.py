"""Plans in Redis: one hash each, written in pieces and valid once its last field is there."""

import functools
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import Any

import msgspec

from tradewind.node_task_manager.domain.concurrency import WhenFull
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.plan import PRIORITY_MS, Plan, PlanNode
from tradewind.node_task_manager.ports.plans import PART
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.faults import Unreadable
from tradewind.server.redis.client import Client
from tradewind.server.redis.records import read_of

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Plan).decode
_unpack_nodes = msgspec.msgpack.Decoder(tuple[PlanNode, ...]).decode
_AT_ONCE = 20
"""A plan of up to this many nodes is written in one step."""
_LAYOUT = "j"
"""Prefix of the editions of plans in this layout: scripts must not mix nodes of one plan in two layouts."""
_PIECE = PART
"""How many nodes are written at once, and how many items of a list are in one field; scripts know this number."""


class _Facts(msgspec.Struct, frozen=True):
    """What Python reads of a plan's facts."""

    nodes: int


_unpack_facts = msgspec.msgpack.Decoder(_Facts).decode


class RedisPlanStore:
    """A PlanStore with a hash for each plan; `body` is the plan for Python, and scripts read most other fields.

    The nodes of a plan of more than a part of them, without edges, are in `nodes:<part>` and not in `body`: one item of
    a large batch is read without the others.

    `n:<place>` holds a node with its first outgoing edges, `out:<place>:<piece>` the rest of them, `ids:<piece>` the
    ids of the nodes, `entries:<piece>` the places of nodes without inputs. `facts`, written last, holds the counts and
    the edition, which tells plans with the same digest apart. Scripts count in `open` the components that use the plan.
    """

    def __init__(self, client: Client, keys: Keys, limits: Limits) -> None:
        self._client = client
        self._keys = keys
        self._retention_ms = limits.plan_retention_ms

    async def save(self, plan: Plan, keep_ms: int | None = None) -> None:
        key, keep_ms = self._keys.plan(plan.digest), keep_ms or self._retention_ms
        if await self._is_known(key):
            # A plan that is in use has no time to live, and gets none here.
            await self._client.execute_command("PEXPIRE", key, keep_ms, "XX")
            return
        ids = [node.node_id for node in plan.nodes]
        parts = {} if plan.edges or len(ids) <= PART else _list("nodes", plan.nodes)
        body = _pack(replace(plan, nodes=()) if parts else plan)
        lists = {**_list("ids", ids), **_list("entries", plan.entries), **parts, "body": body}
        counts = {"nodes": len(ids), "entries": len(plan.entries), "policy": plan.failure_policy}
        facts = {"facts": _pack(counts | {"edition": f"{_LAYOUT}{_checksum([*parts.values(), body]):x}"})}
        if len(plan.nodes) <= _AT_ONCE:
            nodes = [_node(plan, place) for place in range(len(plan.nodes))]
            await self._write(
                key, {name: value for fields in (*nodes, lists, facts) for name, value in fields.items()}, keep_ms
            )
            return
        for first in range(0, len(plan.nodes), _PIECE):
            fields: dict[str, bytes] = {}
            for place in range(first, min(first + _PIECE, len(plan.nodes))):
                fields.update(_node(plan, place))
            await self._write(key, fields, keep_ms)
        await self._write(key, lists, keep_ms)
        await self._write(key, facts, keep_ms)

    async def _is_known(self, key: str) -> bool:
        """Say whether a plan is on record; what is of another type makes way for it."""
        try:
            with read_of(key):
                return bool(await self._client.execute_command("HEXISTS", key, "facts"))
        except Unreadable:
            await self._client.execute_command("DEL", key)
            return False

    async def _write(self, key: str, fields: Mapping[str, bytes], keep_ms: int) -> None:
        pipeline = self._client.pipeline(transaction=True)
        pipeline.execute_command("HSET", key, *(part for field in fields.items() for part in field))
        pipeline.execute_command("PEXPIRE", key, keep_ms)
        await pipeline.execute()

    async def load(self, digest: str, place: int | None = None) -> Plan | None:
        key, part = self._keys.plan(digest), (place or 0) // PART
        try:
            with read_of(key):
                facts, body, nodes = await self._client.hmget(key, ["facts", "body", f"nodes:{part}"])
        except Unreadable:
            return None
        if facts is None or body is None:
            return None
        plan = _unpack(body)
        if plan.nodes:
            return plan
        if place is not None:
            return replace(plan, nodes=() if nodes is None else _unpack_nodes(nodes), first=part * PART)
        numbers = range(math.ceil(_unpack_facts(facts).nodes / PART))
        found = await self._client.hmget(key, [f"nodes:{number}" for number in numbers])
        parts = [_unpack_nodes(part) for part in found if part is not None]
        # Anything missing has expired since the body was read.
        return replace(plan, nodes=tuple(chain.from_iterable(parts))) if len(parts) == len(found) else None


def _checksum(pieces: Iterable[bytes]) -> int:
    return functools.reduce(lambda sum, piece: zlib.crc32(piece, sum), pieces, 0)


def _node(plan: Plan, place: int) -> dict[str, bytes]:
    node = plan.nodes[place]
    out = [(plan.edges[at].source_handle, plan.edges[at].target, _field(plan, at)) for at in plan.outputs[place]]
    into = plan.inputs[place]
    facts: dict[str, Any] = {
        "id": node.node_id,
        "type": node.node_type,
        "run_if": node.run_if,
        "inputs": len(into),
        "outputs": len(out),
        "only_sink": place == plan.only_sink,
        "out": out[:_PIECE],
        "start": node.schedule_to_start_ms,
        "close": node.start_to_close_ms,
    }
    if node.priority:
        # A queue orders node tasks by the time when they became ready, less this.
        facts["ahead"] = node.priority * PRIORITY_MS
    if plan.max_running:
        facts["flow_max"] = plan.max_running
    if node.concurrency:
        facts |= {"key": node.concurrency.key, "key_max": node.concurrency.most}
        if node.concurrency.when_full is not WhenFull.WAIT:
            facts["when_full"] = node.concurrency.when_full
    if node.rate:
        # In the name of a waiting group, it stands where other limits have a number.
        group = f"{node.rate.rate.interval_us}.{node.rate.rate.period_us}.{node.rate.cost}"
        facts |= {"pace": node.rate.key, "pace_group": group}
    if node.fan_out is not None:
        facts["map"] = {"edge": plan.mapped_edge(place), "most": node.fan_out.max_parallel}
    if len(into) <= _PIECE:
        facts |= {"into": into, "fields": [_field(plan, at) for at in into]}
    if node.retry is not None and node.retry.attempts > 1:
        facts["retry"] = asdict(node.retry)
    if node.total_ms:
        facts["total"] = node.total_ms
    if node.wait is not None:
        facts["wait"] = {**asdict(node.wait), "sources": _sources(plan, place) if node.wait.passes else ()}
    if node.heartbeat_ms:
        facts["beat"] = node.heartbeat_ms
    return {f"n:{place}": _pack(facts), **_list(f"out:{place}", out, first=1)}


def _field(plan: Plan, edge: int) -> str:
    """The field in which a node task keeps the value of an edge; a single input is found without the plan."""
    return "input" if len(plan.inputs[plan.edges[edge].target]) == 1 else f"in:{edge}"


def _sources(plan: Plan, place: int) -> list[tuple[int, str, str]]:
    """Return the edges into a node: the place of each, the emitting node and the handle."""
    edges = [(at, plan.edges[at]) for at in plan.inputs[place]]
    return [(at, plan.nodes[edge.source].node_id, edge.source_handle) for at, edge in edges]


def _list(name: str, items: Sequence[Any], first: int = 0) -> dict[str, bytes]:
    """Return a list in fields of 500 items each, without the pieces before `first`."""
    starts = range(first * _PIECE, len(items), _PIECE)
    return {f"{name}:{start // _PIECE}": _pack(items[start : start + _PIECE]) for start in starts}
