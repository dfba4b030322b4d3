"""The numbers that bound the registry; times in milliseconds, sizes in bytes."""

from dataclasses import dataclass

HOUR_MS = 3600 * 1000


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long records last without being renewed.

    A worker is offline `time_to_live` after its last heartbeat, and its record ends `retention` later. A declaration
    lapses `retention` after the last worker that offers it would have been offline.
    """

    heartbeat_interval: int = 20_000
    time_to_live: int = 60_000
    retention: int = 24 * HOUR_MS

    def __post_init__(self) -> None:
        if self.heartbeat_interval <= 0:
            raise ValueError("the heartbeat interval must be positive")
        if self.time_to_live < 3 * self.heartbeat_interval:
            raise ValueError(
                "the time to live must be at least three heartbeat intervals; otherwise a worker would be offline "
                "after one lost heartbeat"
            )
        if self.retention < 0:
            raise ValueError("the retention must not be negative")

    def alive(self, last_heartbeat: int, now: int) -> bool:
        """Say whether a worker with this last heartbeat is alive."""
        return now - last_heartbeat < self.time_to_live

    def on_record(self, last_heartbeat: int, now: int) -> bool:
        """Say whether a worker with this last heartbeat is still on record."""
        return now - last_heartbeat < self.time_to_live + self.retention

    def lapse(self, now: int) -> int:
        """Return when the declaration of a node type that is offered now lapses."""
        return now + self.time_to_live + self.retention


@dataclass(frozen=True, slots=True)
class Limits:
    """How many records there may be, and how large they may be.

    `workers` and `node_types` bound the records. `answer_bytes` bounds one answer; the largest declaration fits into
    it. `available` is how many available workers an answer lists if the caller gives no limit.
    """

    workers: int = 100_000
    node_types: int = 10_000
    node_types_of_worker: int = 500
    handles: int = 256
    schema_bytes: int = 64 * 1024
    declaration_bytes: int = 1024 * 1024
    description_bytes: int = 4 * 1024
    text_characters: int = 256
    labels: int = 32
    replaced_incarnations: int = 16
    offering: int = 1_000
    available: int = 100
    max_available: int = 1_000
    named_node_types: int = 1_000
    records_per_script: int = 500
    answer_bytes: int = 2 * 1024 * 1024
