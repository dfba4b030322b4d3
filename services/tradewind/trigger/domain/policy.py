"""The numbers that govern a trigger's life: leases, failures, retention and caps."""

from dataclasses import dataclass

BATCH_BYTES = 1024 * 1024
"""A claim or a page takes no further trigger once it has this many bytes of payloads, schedules and other texts."""

REAP_LIMIT = 100
"""How many lapsed claims of a partition one claim order takes back at most; the next order takes back the rest."""

FORMER_LEASE_MS = 2_000
"""How long a partition's former receiver, which may be dead, has to answer its claims once there is a new one."""

FORMER_CLAIMS = 1_000
"""For how many claims of a former receiver this holds: as many as a scheduler has credits for."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Times in milliseconds, counts per partition."""

    lease_ms: int = 30_000
    """How long a receiver may take to acknowledge before the trigger is delivered again."""
    max_failures: int = 10
    """After how many failures in a row a trigger is dead."""
    backoff_initial_ms: int = 1_000
    """The delay after the first nack; it doubles with each further one."""
    backoff_max_ms: int = 300_000
    """The longest delay after a nack that does not set its own."""
    retention_ms: int = 7 * 24 * 3_600_000
    """How long completed and dead triggers are kept."""
    tombstone_ms: int = 3_600_000
    """How long the epoch of a removed trigger is remembered."""
    dead_kept: int = 1_000
    """How many dead letters are kept; the oldest are dropped first."""
    firings_kept: int = 1_000
    """How many lines of fire history are kept."""
    repeat_ms: int = 24 * 3_600_000
    """How long after a firing the same event does not fire the same trigger again."""
    max_pending: int = 500
    """How many firings of a trigger may wait or be leased; further ones are dropped."""
    max_queue_triggers: int = 100_000
    """How many triggers a queue may hold."""
    max_listeners: int = 1_000
    """How many triggers of a partition may listen to events of one name."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    def backoff_ms(self, failures: int) -> int:
        """Return the delay after `failures` failures in a row; 0 for none."""
        if failures < 1:
            return 0
        return int(min(self.backoff_max_ms, self.backoff_initial_ms * 2 ** min(failures - 1, 40)))
