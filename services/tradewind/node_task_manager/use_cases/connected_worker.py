"""A worker connected to this process: what it offers, how much room it has, and what it holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from tradewind.node_task_manager.domain.caching import CacheUse
from tradewind.node_task_manager.domain.handles import Declared
from tradewind.node_task_manager.ports.work import Held
from tradewind.node_task_manager.ports.workers import WorkerLine

UNANSWERED_PINGS = 3


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker says about a node type: its version, the cache that outputs may come from unless the node names
    one, whether nodes may begin before their input is stored, and its output handles, None when it does not say."""

    version: str = ""
    cache: CacheUse | None = None
    eager: bool = False
    outputs: frozenset[str] | None = None


@dataclass(eq=False)
class ConnectedWorker:
    """A worker behind a stream. `sessions` holds the number of its stream by shard, `held` its leases by nonce.

    The worker cannot name `unnamed` leases: it does not know them yet, or has reported their end, which is not
    stored yet. `promised` is room offered to claims under way; `offers` describes some of its node types.
    """

    worker_id: str
    incarnation: str
    node_types: tuple[str, ...]
    capacity: int
    line: WorkerLine
    sessions: dict[int, int] = field(default_factory=dict)
    held: dict[str, tuple[int, Held]] = field(default_factory=dict)
    unnamed: set[str] = field(default_factory=set)
    promised: int = 0
    offers: Mapping[str, Offer] = field(default_factory=dict)
    unanswered_pings: int = 0

    called: ClassVar[bool] = False
    """Whether the worker is called, and renews its leases and reports by calls of its own."""

    @property
    def silent(self) -> bool:
        """Whether it has answered none of the last few pings."""
        return self.unanswered_pings > UNANSWERED_PINGS

    @property
    def reachable(self) -> bool:
        """Whether the worker is there, as far as is known."""
        return not self.silent

    @property
    def room(self) -> int:
        """How many node tasks it can take beyond those it holds or may be about to get; none while it answers no pings
        or does not read what was sent."""
        if self.silent or self.line.full:
            return 0
        return max(0, self.capacity - len(self.held) - self.promised)

    @cached_property
    def eager_types(self) -> frozenset[str]:
        """The node types that it may go on with by itself, without those whose results may be in a cache."""
        return frozenset(name for name, offer in self.offers.items() if offer.eager and offer.cache is None)

    @cached_property
    def declared(self) -> Declared:
        """The output handles of those of its node types that it has declared."""
        return declared_by(self.offers)

    def version_of(self, node_type: str) -> str:
        """Return the version of a node type, "" when it has none."""
        offer = self.offers.get(node_type)
        return offer.version if offer is not None else ""

    def held_in(self, shard: int) -> list[Held]:
        """Return the leases that it holds in a shard."""
        return [held for at, held in self.held.values() if at == shard]

    def unnamed_in(self, shard: int) -> list[Held]:
        """Return the leases that it holds in a shard and cannot name; none while it is silent."""
        if self.silent or not self.unnamed:
            return []
        return [each for each in self.held_in(shard) if each.nonce in self.unnamed]

    def release_earlier(self, shard: int, latest: Mapping[str, str]) -> None:
        """Note that it holds only these attempts, nonces by node task: it ends an earlier one without a report."""
        for nonce, (at, held) in list(self.held.items()):
            if at == shard and latest.get(held.task_id, nonce) != nonce:
                self.release(nonce)

    def release(self, nonce: str) -> None:
        """Note that it no longer holds this lease."""
        self.held.pop(nonce, None)
        self.unnamed.discard(nonce)


def declared_by(offers: Mapping[str, Offer]) -> Declared:
    """Return the output handles of the node types that declare them."""
    return frozenset((name, offer.outputs) for name, offer in offers.items() if offer.outputs is not None)
