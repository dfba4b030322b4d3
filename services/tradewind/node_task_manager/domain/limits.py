"""The numbers that bound node tasks; times in milliseconds, sizes in bytes."""

from dataclasses import dataclass

OUTPUT_BYTES = 1024 * 1024
"""What a node task may emit, all handles together."""
MOST_KEPT_CYCLES = 10_000
SHORTEST_KEPT_MS, LONGEST_KEPT_MS = 60_000, 7 * 24 * 3600 * 1000
"""What a flow may say of how many ended runs it keeps, and for how long."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a store must know beyond its records."""

    lease_ms: int = 30_000
    stop_grace_ms: int = 10_000
    records_per_script: int = 200
    signal_bytes: int = 4096
    answer_bytes: int = 1024
    losses: int = 3
    """A node task that has lost so many workers is given up."""
    retention_ms: int = 24 * 3600 * 1000
    run_retention_ms: int = 8 * 24 * 3600 * 1000
    plan_retention_ms: int = 30 * 24 * 3600 * 1000
    tombstone_ms: int = 3600 * 1000
    events_per_partition: int = 100_000
    log_cycles: int = 5
    """The newest cycles of a flow, each of which may have `log_lines`."""
    log_lines: int = 10_000
    logged_cycles: int = 100
    """Those that have log lines at all; the older ones of them keep their newest `older_log_lines`."""
    older_log_lines: int = 100
    unnamed_ms: int = 2_000
    fan_out_lease_ms: int = 5_000
    output_bytes: int = OUTPUT_BYTES
    user_queue: int = 100_000
    task_events: int = 250
    """The newest events of a node task,"""
    notifications: int = 1_000
    """and the newest notifications of a user, that are kept,"""
    notification_retention_ms: int = 7 * 24 * 3600 * 1000
    """these no longer than that."""
    keep_cycles: int = 100
    """How many ended runs of a flow stay, unless it says otherwise;"""
    settle_ms: int = 60_000
    """and those that ended less than this ago, whatever it says."""
    clean_keys: int = 500
    cleaner_lease_ms: int = 15_000
    silent_ms: int = 60_000
    retries: int = 10
    """Further attempts that a flow may have within a minute at any rate,"""
    retry_percent: int = 20
    """and how many in a hundred attempts begun, where that is more."""


MOST_AHEAD_MS = 1_000
"""So long before its planned time a node task may be handed out, to begin at that time."""
