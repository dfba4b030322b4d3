"""A queue of users' own in a life: receivers that answer its triggers at random, or never.

In the end:

1. Nothing that a receiver held was delivered to another one, nor anything that had been acknowledged.
2. An answer that was given while the connection was there took effect, unless it was reported as lost.
3. What counts as fired was acknowledged, and counts once; a trigger has fired as often as its history says.
4. Every event, and every end of a cycle, has reached the trigger that listens to all of them.
5. Every trigger has fired for the last time, is dead, or waits for events.

Where the store of the triggers loses writes, only 5 holds.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import grpc

from tradewind.client import Client, DueTrigger, DueTriggers, TradewindError, TriggerFiring, TriggerRecord

QUEUE = "orders"
RECEIVERS = 2
ALL_EVENTS, ALL_ENDS = "all-events", "all-ends"
"""The triggers that listen to all events of users, and to all ends of cycles."""

Firing = tuple[str, datetime | None, str]
"""The id of a trigger, a planned time, and the id of an event or ""."""


class Receivers:
    """The receivers of the queue, and what they know of it."""

    def __init__(self, draw: random.Random, client: Client) -> None:
        self._draw = draw
        self._client = client
        self._broken: list[str] = []
        self._shared: list[str] = []
        """What was delivered although somebody held it."""
        self._held: dict[Firing, DueTrigger] = {}
        self._delivered: dict[Firing, DueTrigger] = {}
        """The latest delivery of each."""
        self._acked: list[tuple[DueTriggers, DueTrigger]] = []

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Receive."""
        receiving = [asyncio.create_task(self._receive(f"r{at}")) for at in range(RECEIVERS)]
        try:
            yield
        finally:
            for task in receiving:
                task.cancel()
            for ended in await asyncio.gather(*receiving, return_exceptions=True):
                if not isinstance(ended, asyncio.CancelledError):
                    self._broken.append(f"a receiver ended: {ended!r}")

    async def violations(self, events: Iterable[str], ends: Iterable[str], *, loses_writes: bool) -> list[str]:
        """Return a sentence for everything that is not as it must be.

        `events` has the ids of all events that were published, `ends` those of all runs that ended.
        """
        triggers = [trigger async for trigger in self._client.list_triggers(QUEUE)]
        found = [*self._broken]
        found += [f"trigger {each}" for each in triggers if each.status not in ("completed", "dead", "waiting")]
        if loses_writes:
            return found
        lines = [line async for line in self._client.list_trigger_firings(QUEUE)]
        listens = {trigger.trigger_id for trigger in triggers}
        found += [*self._shared, *_of_counts(triggers, lines)]
        found += self._of_deliveries([line for line in lines if line.outcome == "fired"])
        found += [sentence async for sentence in self._of_answers(lines)]
        for trigger_id, expected in ((ALL_EVENTS, events), (ALL_ENDS, ends)):
            if trigger_id in listens:
                reached = {line.event_id for line in lines if line.trigger_id == trigger_id}
                found += [f"{event} did not reach {trigger_id}" for event in expected if event not in reached]
        return found

    async def _receive(self, name: str) -> None:
        while True:
            credits, most = self._draw.choice((1, 3, 10)), self._draw.choice((1, 10, 50))
            taken: list[DueTrigger] = []
            async with self._client.receive_due(QUEUE, credits=credits, receiver=name) as due_triggers:
                async with asyncio.TaskGroup() as handlers:
                    try:
                        async for due in due_triggers:
                            self._take(due)
                            taken.append(due)
                            handlers.create_task(self._handle(due, due_triggers))
                            if len(taken) == most:
                                break
                    except TradewindError:
                        await asyncio.sleep(1)
                # What it has not answered is given back now.
                for due in taken:
                    self._let_go(due)

    def _take(self, due: DueTrigger) -> None:
        holder = self._held.get(_firing_of(due))
        if holder and _holds(holder):
            self._shared.append(f"{due} was delivered, although {holder.token} holds it until {holder.lease_deadline}")
        self._held[_firing_of(due)] = self._delivered[_firing_of(due)] = due

    async def _handle(self, due: DueTrigger, due_triggers: DueTriggers) -> None:
        draw = self._draw
        await asyncio.sleep(draw.choice((0, 0, 0, 0.1, 1, 20, 40)))
        fate = draw.random()
        if fate < 0.05:
            return
        if fate < 0.1:
            if _holds(due):
                due.lease_deadline = _now() + timedelta(seconds=100)
            await due.extend(100)
            await asyncio.sleep(60)
        self._let_go(due)
        if fate > 0.8 or due.payload == "bad":
            await due.nack("bad luck", retry_after=draw.choice((None, 0, 3)))
            return
        if not due._stream.call.done():
            self._acked.append((due_triggers, due))
        await due.ack(finished=fate > 0.75)

    def _let_go(self, due: DueTrigger) -> None:
        if self._held.get(_firing_of(due)) is due:
            del self._held[_firing_of(due)]

    async def _of_answers(self, lines: Sequence[TriggerFiring]) -> AsyncIterator[str]:
        fired = {_firing_in(line) for line in lines if line.outcome == "fired"}
        for due_triggers, due in self._acked:
            call = due._stream.call
            arrived = not call.done() or await call.code() is grpc.StatusCode.OK
            if arrived and not due_triggers.lost(due) and _firing_of(due) not in fired:
                yield f"the acknowledgement of {due} under {due.token} had no effect"

    def _of_deliveries(self, fired: Sequence[TriggerFiring]) -> Iterator[str]:
        acked = {_firing_of(due) for _, due in self._acked}
        for line in fired:
            due = self._delivered[_firing_in(line)]
            if _firing_in(line) not in acked:
                yield f"{line} was not acknowledged"
            elif due.delivered_at and line.ended_at and due.delivered_at > line.ended_at:
                yield f"{line} was delivered again at {due.delivered_at}"


def _of_counts(triggers: Sequence[TriggerRecord], lines: Sequence[TriggerFiring]) -> Iterator[str]:
    fired = Counter(_firing_in(line) for line in lines if line.outcome == "fired")
    yield from (f"{firing} counts {times} times" for firing, times in fired.items() if times > 1)
    for trigger in triggers:
        listens = trigger.schedule.startswith("event")
        counted = [id for id, _, event_id in fired if id == trigger.trigger_id and bool(event_id) == listens]
        if trigger.fired != len(counted):
            yield f"{trigger} has fired {len(counted)} times by its history"
        if trigger.pending:
            yield f"{trigger} has pending firings"


def _holds(due: DueTrigger) -> bool:
    """Whether a receiver may believe to hold what was delivered to it."""
    return not due._stream.call.done() and bool(due.lease_deadline and due.lease_deadline > _now())


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


def _firing_of(due: DueTrigger) -> Firing:
    return due.trigger_id, due.planned_time, due.event_id


def _firing_in(line: TriggerFiring) -> Firing:
    return line.trigger_id, line.planned_time, line.event_id
