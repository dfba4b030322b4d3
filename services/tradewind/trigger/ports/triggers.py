"""The port for storing triggers, and finding those that are due."""

from dataclasses import dataclass
from typing import Protocol

from tradewind.trigger.domain.trigger import Trigger, TriggerDraft


@dataclass(frozen=True, slots=True)
class Position:
    """A place in an index of triggers: after the entry with this score and id."""

    score: int
    id: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a listing, of about `size` bytes; `more` says that other triggers follow after `end`."""

    triggers: tuple[Trigger, ...]
    size: int
    end: Position | None
    more: bool


class TriggerStore(Protocol):
    """Stores triggers. Every change is one atomic step."""

    async def save(self, partition: int, draft: TriggerDraft) -> Trigger:
        """Create the trigger, or replace the stored one with the same id, and return it as stored.

        A new trigger is planned at its schedule's first time, or completed at once when no time is left.
        With schedule and epoch unchanged, planned time, status, failures and a claim stay as they are, and the revision
        rises only when payload or partition key changed.
        Otherwise the trigger is scheduled anew with no failures, and a claim of it becomes void. If the schedule is
        unchanged and the trigger had not completed, its planned time and its count of firings stay.
        A paused trigger stays paused unless the epoch is raised. A trigger that fires for events waits for them.
        Raises StaleEpoch when the stored trigger, or one removed under this id within the last hour, has a higher
        epoch, and QueueFull when the cap on the queue's triggers or on the event's listeners is reached.
        """
        ...

    async def remove(self, partition: int, trigger_id: str, epoch: int) -> bool:
        """Remove a trigger in any status, and return whether there was one.

        A claim of it becomes void. The epoch is remembered for the policy's time, even when there was no trigger.
        Raises StaleEpoch when a higher epoch is known.
        """
        ...

    async def find(self, partition: int, trigger_id: str) -> Trigger | None:
        """Return the trigger, or None when there is none or its retention has passed.

        A flow's trigger that has been lost from those that receive events is none, until it is saved again.
        """
        ...

    async def page_scheduled(self, partition: int, up_to_ms: int | None, after: Position | None, limit: int) -> Page:
        """Return up to `limit` scheduled triggers after `after`, earliest delivery first.

        Only those to be delivered at or before `up_to_ms` (0: the store's present time; None: all). A page ends early
        once it holds a MiB. Changes nothing.
        """
        ...

    async def page_claimed(self, partition: int, after: Position | None, limit: int) -> Page:
        """Return up to `limit` claimed triggers in order of the end of their lease, as `page_scheduled` does."""
        ...
