"""Who receives which partition in this process, and who hears when something there changes."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol, TypeVar

import structlog

from tradewind.trigger.ports import DeadLetter, EarlierDue, NewReceiver, Wake

Result = TypeVar("Result")

_log = structlog.get_logger(__name__)


class Receiver(Protocol):
    """One open delivery, as the others see it."""

    def expect(self, partition: int, due_ms: int) -> None:
        """Something in the partition is due at `due_ms`."""
        ...

    def doubt(self, partition: int, session: str) -> None:
        """This session has become the partition's receiver: make sure who is."""
        ...

    def look(self) -> None:
        """Messages may have been lost: look for what is due."""
        ...


class Receivers:
    """The open deliveries of this process, and what they have at work."""

    def __init__(self) -> None:
        self._open: set[Receiver] = set()
        self._at_work: set[asyncio.Task[Any]] = set()

    def enter(self, receiver: Receiver) -> None:
        """Let a delivery hear of changes."""
        self._open.add(receiver)

    def leave(self, receiver: Receiver) -> None:
        """Let it hear no more."""
        self._open.discard(receiver)

    def hear(self, wake: Wake) -> None:
        """Pass a change on to whom it concerns."""
        match wake:
            case EarlierDue(partition, due_ms):
                for receiver in self._open:
                    receiver.expect(partition, due_ms)
            case NewReceiver(new):
                for receiver in self._open:
                    receiver.doubt(new.partition, new.session)

    def missed(self) -> None:
        """Changes may have gone unheard."""
        for receiver in self._open:
            receiver.look()

    def carry_out(self, work: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
        """Do something to its end, even when the delivery that waits for it is cut off meanwhile.

        What the store has half heard is neither done nor not done; and before Python 3.12 a client that is cancelled
        while it writes to its socket forgets the cancellation.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._at_work.add(task)
        task.add_done_callback(self._done)
        return task

    def leave_behind(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry something out that nobody waits for."""
        _ = self.carry_out(work)

    async def settle(self) -> None:
        """Wait until everything is carried out."""
        while self._at_work:
            await asyncio.gather(*self._at_work, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._at_work.discard(task)
        if not task.cancelled():
            # Looked at, so that a failure nobody waits for any more is no stray exception.
            task.exception()


def alarm(dead: Iterable[DeadLetter], orphans: Iterable[str] = ()) -> None:
    """Tell people of triggers that will not fire any more although nobody wanted that."""
    for letter in dead:
        _log.error(
            "trigger_dead",
            trigger_id=letter.trigger_id,
            failures=letter.failures,
            error=letter.error,
            hint="mend the cause, then save it again with a higher epoch",
        )
    for trigger_id in orphans:
        _log.error(
            "trigger_without_record",
            trigger_id=trigger_id,
            hint="the store has lost its record; save it again",
        )
