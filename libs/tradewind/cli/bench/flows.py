"""The benchmark's flows: a chain of 10 nodes, a fan of 100 between a source and a join, a single node."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from tradewind.client import Client

CHAIN = 10
FAN = 100
_WAIT_S = 60.0


class Shape(StrEnum):
    """The graph of a flow."""

    CHAIN = "chain"
    FAN = "fan"
    SINGLE = "single"

    @property
    def nodes(self) -> int:
        """How many nodes a flow has."""
        return {Shape.CHAIN: CHAIN, Shape.FAN: FAN + 2, Shape.SINGLE: 1}[self]

    @property
    def hops(self) -> int:
        """How many nodes the longest path has."""
        return {Shape.CHAIN: CHAIN, Shape.FAN: 3, Shape.SINGLE: 1}[self]

    @property
    def answer(self) -> int:
        """The number that the last node must emit."""
        return {Shape.CHAIN: CHAIN, Shape.FAN: 2 * FAN, Shape.SINGLE: 1}[self]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds from the first call to the last answer, and the seconds of each flow."""

    seconds: float
    flow_seconds: Sequence[float]


class WrongAnswer(Exception):
    """A flow did not emit the expected number: nodes or values were lost."""


def weather(shape: Shape, *, eager: bool = False) -> dict[str, Any]:
    """Return the flow in Weather Syntax, with or without `eager` nodes; node `last` emits its answer."""
    increment = "bench_eager_increment" if eager else "bench_increment"
    names = {
        Shape.CHAIN: [*(f"n{at}" for at in range(1, CHAIN)), "last"],
        Shape.FAN: ["source", *(f"n{at}" for at in range(FAN)), "last"],
        Shape.SINGLE: ["last"],
    }[shape]
    pairs: list[tuple[str, str]] = {
        Shape.CHAIN: list(pairwise(names)),
        Shape.FAN: [("source", name) for name in names[1:-1]] + [(name, "last") for name in names[1:-1]],
        Shape.SINGLE: [],
    }[shape]
    joins = {"last"} if shape is Shape.FAN else set()
    return {
        "interval": "1d",
        "overlap": "allow",
        "nodes": [{"id": name, "type": "bench_join" if name in joins else increment} for name in names],
        "edges": [
            {
                "source": source,
                "source_handle": "value",
                "target": target,
                "target_handle": "values" if target in joins else "value",
            }
            for source, target in pairs
        ],
    }


class FlowSet:
    """`count` registered flows of one shape, and ways to run them."""

    def __init__(self, client: Client, shape: Shape, count: int, *, eager: bool = False) -> None:
        self._client = client
        self.shape = shape
        self._definition = weather(shape, eager=eager)
        self._ids = [f"bench-{'eager-' if eager else ''}{shape}-{at}" for at in range(count)]

    async def register(self) -> None:
        """Register the flows, 50 at a time."""
        for first in range(0, len(self._ids), 50):
            part = self._ids[first : first + 50]
            await asyncio.gather(*(self._client.register_flow(flow_id, self._definition) for flow_id in part))

    async def delete(self) -> None:
        """Delete the flows."""
        for first in range(0, len(self._ids), 50):
            await asyncio.gather(*(self._client.delete_flow(each) for each in self._ids[first : first + 50]))

    async def run(self, flows: int, in_flight: int) -> Timing:
        """Run `flows` cycles, one call each, `in_flight` at once. Raises WrongAnswer."""
        latencies: list[float] = []
        ids = iter(range(flows))

        async def keep_running(ids: Iterator[int]) -> None:
            for at in ids:
                began = time.perf_counter()
                handle = await self._client.run_flow(self._ids[at % len(self._ids)], wait=_WAIT_S)
                self._check(await handle.result(_WAIT_S))
                latencies.append(time.perf_counter() - began)

        began = time.perf_counter()
        await asyncio.gather(*(keep_running(ids) for _ in range(in_flight)))
        return Timing(time.perf_counter() - began, latencies)

    async def run_bulk(self, flows: int, *, one_flow: bool = False) -> Timing:
        """Run `flows` cycles in one call, all of them of one flow if `one_flow`. Raises WrongAnswer."""
        began = time.perf_counter()
        ids = self._ids[:1] if one_flow else self._ids
        requests = [ids[at % len(ids)] for at in range(flows)]
        for handle in await self._client.run_flows(requests, wait=_WAIT_S):
            if isinstance(handle, Exception):
                raise handle
            self._check(await handle.result(_WAIT_S))
        seconds = time.perf_counter() - began
        return Timing(seconds, [seconds] * flows)

    def _check(self, outputs: Any) -> None:
        answer = outputs.get("last", {}).get("value", {}).get("n")
        if answer != self.shape.answer:
            raise WrongAnswer(f"a {self.shape} flow emitted {outputs!r} instead of {self.shape.answer}")
