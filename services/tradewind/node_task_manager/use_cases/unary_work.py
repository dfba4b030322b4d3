"""Working without a stream: claiming, renewing and ending node tasks call by call."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import structs

from tradewind.node_task_manager.domain.handles import Declared
from tradewind.node_task_manager.metrics import LEASES_LOST, count_assigned, count_ended
from tradewind.node_task_manager.ports.work import Assignment, Held, Outcome, Postponed, Termination, Vacancy
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.node_task_manager.use_cases.cached_delivery import cached_outcome
from tradewind.node_task_manager.use_cases.caches import Hit, ResultCaches
from tradewind.node_task_manager.use_cases.connected_worker import Offer, declared_by
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.inputs import (
    InputsTooLarge,
    ready,
    unassignable_outcome,
    with_inputs,
)
from tradewind.node_task_manager.use_cases.plans import PlanCache
from tradewind.node_task_manager.use_cases.shard import by_shard
from tradewind.node_task_manager.use_cases.trace_nodes import TraceNodes


class UnaryWork:
    """Serves workers that are known only by name, over all shards. Tokens must name existing shards.

    `ended(worker_id, shard, held)` is called with leases that a worker no longer holds, so that it may be called again;
    `gave_back` likewise with those that it has given back, which are for others.
    """

    def __init__(
        self,
        dispatchers: Mapping[int, Dispatcher],
        plans: PlanCache,
        caches: ResultCaches,
        ended: Callable[[str, int, Sequence[Held]], None],
        gave_back: Callable[[str, int, Sequence[Held]], None],
        traces: TraceNodes | None = None,
    ) -> None:
        self._traces = traces
        self._dispatchers = dispatchers
        self._caches = caches
        self._plans = plans
        self._ended = ended
        self._gave_back = gave_back

    async def claim(self, worker_id: str, offers: Mapping[str, Offer], limit: int, size: int) -> list[Ready]:
        """Take up to `limit` ready node tasks of the offered types, up to `size` bytes in all, but at least one if any.

        When this fails, or the caller goes away, all are given back.
        """
        claiming = asyncio.get_running_loop().create_task(self._claim(worker_id, offers, limit, size))
        try:
            claimed = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # The store may have leased node tasks by now that nobody would ever learn of.
            await self.give_back(worker_id, map(_token, await claiming))
            raise
        return claimed if self._traces is None else self._traces.dispatched(claimed)

    async def _claim(self, worker_id: str, offers: Mapping[str, Offer], limit: int, size: int) -> list[Ready]:
        claimed: list[Ready] = []
        left: list[tuple[int, Held]] = []
        declared = declared_by(offers)
        try:
            for number, dispatcher in self._dispatchers.items():
                if left or len(claimed) == limit:
                    break
                effects = await dispatcher.shard.tasks.claim(
                    [Vacancy(worker_id, 0, limit - len(claimed), tuple(offers))]
                )
                left = [(number, each.held) for each in effects.assignments]
                count_assigned(effects.assignments)
                dispatcher.apply(structs.replace(effects, assignments=()))
                for assignment in effects.assignments:
                    whole = await self._with_inputs(dispatcher, assignment, declared)
                    if whole is not None and claimed and whole.size > size:
                        break
                    if whole is not None and not await self._answered_elsewhere(dispatcher, whole, offers):
                        claimed.append(whole)
                        size -= whole.size
                    del left[0]
            await self.give_back(worker_id, left)
        except Exception:
            await self.give_back(worker_id, [*left, *map(_token, claimed)])
            raise
        return claimed

    async def _with_inputs(self, dispatcher: Dispatcher, assignment: Assignment, declared: Declared) -> Ready | None:
        """Return an assignment with its values; if it cannot run, fail it and return None."""
        shard = dispatcher.shard
        try:
            plan = await self._plans.require(shard.plans, assignment.plan, assignment.index)
            whole = await with_inputs(shard.reader, assignment, plan)
            return ready(shard.number, whole, plan, declared)
        except (LookupError, InputsTooLarge) as error:
            await self.end(assignment.worker_id, [(shard.number, unassignable_outcome(assignment, error))])
            return None

    async def _answered_elsewhere(self, dispatcher: Dispatcher, item: Ready, offers: Mapping[str, Offer]) -> bool:
        """Say whether its worker need not run it: its outputs were in a cache, or another attempt works them out."""
        offer = offers[item.node.node_type]
        use = self._caches.use_of(item, offers)
        found = await self._caches.look_up(item, use, offer.version, None) if use is not None else None
        if use is None or found is None:
            return False
        if self._traces is not None:
            self._traces.answered(item, postponed=not isinstance(found, Hit))
        given = item.assignment
        if isinstance(found, Hit):
            await self.end(given.worker_id, [(item.shard, cached_outcome(item, use, found))])
            return True
        postponed = Postponed(given.task_id, given.nonce, found.ms)
        dispatcher.apply(await dispatcher.shard.tasks.postpone([postponed]))
        await self._caches.waiters.postponed(item.shard, [given.task_id])
        return True

    async def give_back(self, worker_id: str, held: Iterable[tuple[int, Held]]) -> None:
        """Queue again node tasks that did not begin, or may run elsewhere; those that are not held are ignored."""
        for number, mine in by_shard(held).items():
            dispatcher = self._dispatchers[number]
            dispatcher.apply(await dispatcher.shard.tasks.give_back(worker_id, 0, mine))
            for each in mine:
                self._caches.flights.dropped(each.nonce)
            self._gave_back(worker_id, number, mine)
            dispatcher.request_claim()

    async def renew(
        self, worker_id: str, held: Sequence[tuple[int, Held]]
    ) -> tuple[list[tuple[int, Held, str]], list[tuple[int, Termination]], int]:
        """Renew leases; return lost ones with the reason, stops asked for, and the new deadline (epoch ms)."""
        lost: list[tuple[int, Held, str]] = []
        terminations: list[tuple[int, Termination]] = []
        deadline = 0
        for number, mine in by_shard(held).items():
            renewal = await self._dispatchers[number].shard.tasks.renew(worker_id, 0, mine)
            reasons = dict(renewal.lost)
            LEASES_LOST.inc(len(reasons))
            self._caches.flights.renewed([each.nonce for each in mine if each.nonce not in reasons])
            lost += [(number, each, reasons[each.nonce]) for each in mine if each.nonce in reasons]
            terminations += [(number, each) for each in renewal.effects.terminations]
            deadline = renewal.lease_deadline
        return lost, terminations, deadline

    async def end(self, worker_id: str, outcomes: Sequence[tuple[int, Outcome]]) -> list[tuple[int, Held, str]]:
        """End attempts; return those that were refused, with the reason."""
        lost = []
        for number, mine in by_shard(outcomes).items():
            dispatcher = self._dispatchers[number]
            effects = await dispatcher.shard.tasks.complete(mine)
            count_ended(mine, effects.results)
            if self._traces is not None:
                self._traces.ended(mine, effects.results)
            for outcome, refused in zip(mine, effects.results, strict=True):
                self._caches.flights.ended(outcome, refused)
                if refused:
                    lost.append((number, outcome.held, refused))
            dispatcher.apply(effects)
            self._ended(worker_id, number, [each.held for each in mine])
            dispatcher.request_claim()
        return lost


def _token(claimed: Ready) -> tuple[int, Held]:
    return claimed.shard, claimed.assignment.held
