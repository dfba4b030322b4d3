"""The errors that stores and use cases of this context raise, besides the shared faults."""

from typing import Self

from tradewind.server.faults import Exhausted, FailedPrecondition


class StaleEpoch(FailedPrecondition):
    """The trigger has, or had when it was removed, a newer epoch than the caller's."""

    def __init__(self, trigger_id: str, epoch: int, known: int) -> None:
        message = (
            f'trigger "{trigger_id}" was already saved or removed with epoch {known}, which is newer than {epoch}; '
            "read the owner's record again and send its current epoch"
        )
        metadata = {"trigger_id": trigger_id, "epoch": str(epoch), "known_epoch": str(known)}
        super().__init__("STALE_EPOCH", message, f"triggers/{trigger_id}", metadata)
        self.epoch = epoch
        self.known = known


class WrongStatus(FailedPrecondition):
    """The trigger's status does not allow the request."""

    def __init__(self, trigger_id: str, status: str, hint: str) -> None:
        message = f'trigger "{trigger_id}" is {status}; {hint}'
        super().__init__(
            "WRONG_STATUS", message, f"triggers/{trigger_id}", {"trigger_id": trigger_id, "status": status}
        )


class QueueFull(Exhausted):
    """A cap on triggers or firings is reached."""

    def __init__(self, message: str) -> None:
        super().__init__("QUEUE_FULL", message, retry_after_s=5.0)

    @classmethod
    def of_triggers(cls, queue: str, most: int) -> Self:
        """Return the error for a queue with as many triggers as it may hold."""
        return cls(
            f'queue "{queue}" already holds {most} triggers, which is the limit; remove some that are not needed'
        )

    @classmethod
    def of_listeners(cls, event: str, most: int) -> Self:
        """Return the error for an event with as many listeners as it may have."""
        return cls(
            f'{most} triggers already listen to event "{event}", which is the limit; remove some, or let one do the '
            "work of several"
        )
