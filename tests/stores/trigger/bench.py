"""A trigger store under test, its clock, and what tests put into it."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tests.servers import RedisServer
from tradewind.server.clock import ManualClock
from tradewind.trigger.domain.claim import Ack, DueTrigger, Extension, Nack, Subscription, Token
from tradewind.trigger.domain.lead import NO_LEAD, Lead
from tradewind.trigger.domain.policy import Policy
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import Trigger, TriggerDraft
from tradewind.trigger.ports.claims import ClaimOrder, Claims, ClaimStore, Settlement, Survey
from tradewind.trigger.ports.queues import QueueStore
from tradewind.trigger.ports.triggers import Page, Position, TriggerStore
from tradewind.trigger.stores.keys import ACL, Keys
from tradewind.trigger.stores.memory import MemoryTriggerStore
from tradewind.trigger.stores.memory_queues import MemoryQueueStore
from tradewind.trigger.stores.redis import RedisTriggerStore
from tradewind.trigger.stores.redis_queues import RedisQueueStore

PARTITION = 3
SESSION = "s1"
POLICY = Policy(max_failures=4, firings_kept=5, dead_kept=3)
HOUR = 3_600_000
DAY = 24 * HOUR

LASTING_KEYS = (
    "trading_flow:{t*}:trigger:*",
    "trading_flow:{t*}:triggers:due",
    "trading_flow:{t*}:triggers:claimed",
    "trading_flow:{t*}:triggers:dead",
    "trading_flow:{t*}:triggers:firings",
    "trading_flow:{t*}:triggers:receiver",
    "trading_flow:{t*}:triggers:alarms",
    "trading_flow:{t*}:triggers:queues",
    "trading_flow:{t*}:data_version",
    "trading_flow:{t*}:events:*",
    "trading_flow:{t*}:queue:*:trigger:*",
    "trading_flow:{t*}:queue:*:triggers:*",
)
"""Keys that may stay for ever: scheduled triggers, indexes with one entry per trigger, and capped lists."""


class BothPorts(TriggerStore, ClaimStore, Protocol):
    """A store of triggers and of claims."""

    def of_queue(self, queue: str) -> "BothPorts":
        """Return the store for the triggers of a queue."""
        ...


def memory_store(clock: ManualClock, policy: Policy = POLICY) -> BothPorts:
    return MemoryTriggerStore(clock, policy)


def redis_store(server: RedisServer, clock: ManualClock, policy: Policy = POLICY) -> BothPorts:
    """Return a store that is logged in as the service's own user."""
    return RedisTriggerStore(server.connect(ACL.name), Keys(), clock, policy)


def queue_store(server: RedisServer | None, triggers: BothPorts, policy: Policy = POLICY) -> QueueStore:
    """Return the queues over the same data as a store of triggers."""
    if isinstance(triggers, MemoryTriggerStore):
        return MemoryQueueStore(triggers)
    assert isinstance(triggers, RedisTriggerStore)
    assert server is not None
    return RedisQueueStore(server.connect(ACL.name), Keys(), triggers.clock, policy)


def token(text: str) -> Token:
    parsed = Token.parse(text)
    assert parsed is not None, text
    return parsed


@dataclass
class Bench:
    """One partition of a store, used by one receiver unless a test says otherwise."""

    store: BothPorts
    clock: ManualClock
    queues: QueueStore
    _nonces: Iterator[int] = field(default_factory=itertools.count)

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    async def save(
        self, id: str, schedule: Schedule | int = 0, *, payload: str = "{}", epoch: int = 1, partition: int = PARTITION
    ) -> Trigger:
        """Save a trigger; a number means to fire once, that many milliseconds from now."""
        if isinstance(schedule, int):
            schedule = Schedule.once(self.now + schedule)
        return await self.store.save(partition, TriggerDraft(id, "flow", schedule, payload, epoch))

    async def find(self, id: str) -> Trigger | None:
        return await self.store.find(PARTITION, id)

    async def found(self, id: str) -> Trigger:
        trigger = await self.find(id)
        assert trigger is not None, id
        return trigger

    async def subscribe(self, epoch: int = 1, session: str = SESSION, partition: int = PARTITION) -> Survey | int:
        (answer,) = await self.store.subscribe([Subscription(partition, epoch, session)])
        assert answer is not None
        return answer

    async def order(
        self, limit: int = 100, *, lease_ms: int = 30_000, epoch: int = 1, session: str = SESSION,
        partition: int = PARTITION, lead: Lead = NO_LEAD, nonce: str = "",
    ) -> Claims:  # fmt: skip
        nonce = nonce or f"n{next(self._nonces)}"
        (claims,) = await self.store.claim_due(
            [ClaimOrder(Subscription(partition, epoch, session), limit, lease_ms, nonce, lead)]
        )
        return claims

    async def withdraw(self, nonce: str, *partitions: int) -> None:
        """Withdraw the order with this nonce for each of the partitions, or for the bench's own."""
        await self.store.withdraw(
            [ClaimOrder(Subscription(at, 1, SESSION), 100, 30_000, nonce) for at in partitions or (PARTITION,)]
        )

    async def claim(self, limit: int = 100, **options: object) -> list[DueTrigger]:
        return list((await self.order(limit, **options)).due)  # type: ignore[arg-type]

    async def claim_one(self) -> DueTrigger:
        (due,) = await self.claim()
        return due

    async def claim_late(self, id: str, ms: int) -> DueTrigger:
        """Claim the one trigger that is due after `ms` more milliseconds."""
        self.clock.advance(ms)
        due = await self.claim_one()
        assert due.trigger.id == id
        return due

    async def claim_one_of(self, session: str) -> DueTrigger:
        (due,) = await self.claim(session=session)
        return due

    async def ack(
        self, *due: DueTrigger, next_ms: int | None = None, finished: bool = False, session: str = SESSION
    ) -> Settlement:
        return await self.store.ack([Ack(token(one.token), next_ms, finished) for one in due], session)

    async def nack(
        self, *due: DueTrigger, retry_after_ms: int | None = None, error: str = "no", postponed: bool = False
    ) -> Settlement:
        nacks = [Nack(token(one.token), retry_after_ms, error, postponed) for one in due]
        return await self.store.nack(nacks, SESSION)

    async def extend(self, *due: DueTrigger, lease_ms: int) -> Settlement:
        return await self.store.extend([Extension(token(one.token), lease_ms) for one in due])

    async def give_back(self, *due: DueTrigger, session: str = SESSION) -> Settlement:
        return await self.store.give_back([token(one.token) for one in due], session)

    async def scheduled(self, *, up_to_ms: int | None = None, after: Position | None = None, limit: int = 100) -> Page:
        return await self.store.page_scheduled(PARTITION, up_to_ms, after, limit)

    async def claimed(self, *, after: Position | None = None, limit: int = 100) -> Page:
        return await self.store.page_claimed(PARTITION, after, limit)


def ids(due: Sequence[DueTrigger] | Sequence[Trigger]) -> list[str]:
    return [one.trigger.id if isinstance(one, DueTrigger) else one.id for one in due]


def unchanged_but(trigger: Trigger, **changes: object) -> Trigger:
    return replace(trigger, **changes)  # type: ignore[arg-type]
