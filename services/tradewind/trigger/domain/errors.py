"""What stores and use cases of this context raise, besides the shared faults."""

from tradewind.server.faults import FailedPrecondition


class StaleEpoch(FailedPrecondition):
    """The trigger is, or was when it was removed, of a newer epoch than the caller's."""

    def __init__(self, trigger_id: str, epoch: int, known: int) -> None:
        message = (
            f'trigger "{trigger_id}" is known with epoch {known}, which is newer than {epoch}; '
            "read the owner's record again and send its present epoch"
        )
        metadata = {"trigger_id": trigger_id, "epoch": str(epoch), "known_epoch": str(known)}
        super().__init__("STALE_EPOCH", message, f"triggers/{trigger_id}", metadata)
        self.epoch = epoch
        self.known = known
