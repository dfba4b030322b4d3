"""The numbers that bound node tasks; times in milliseconds, sizes in bytes."""

from dataclasses import dataclass

OUTPUT_BYTES = 1024 * 1024
"""The most that a node task may emit, all handles together."""
MAX_KEPT_CYCLES = 10_000
SHORTEST_KEPT_MS, LONGEST_KEPT_MS = 60_000, 7 * 24 * 3600 * 1000
"""Bounds for how many ended runs a flow may ask to keep, and for how long."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The numbers that a store needs beyond its records; scripts get them by these names."""

    lease_ms: int = 30_000
    stop_grace_ms: int = 10_000
    records_per_script: int = 200
    signal_bytes: int = 4096
    answer_bytes: int = 1024
    losses: int = 3
    """A node task that has lost this many workers is given up."""
    retention_ms: int = 24 * 3600 * 1000
    run_retention_ms: int = 8 * 24 * 3600 * 1000
    plan_retention_ms: int = 30 * 24 * 3600 * 1000
    tombstone_ms: int = 3600 * 1000
    events_per_partition: int = 100_000
    log_cycles: int = 5
    """How many of a flow's newest cycles may have `log_lines` each."""
    log_lines: int = 10_000
    logged_cycles: int = 100
    """How many cycles have log lines at all; those beyond `log_cycles` keep their newest `older_log_lines`."""
    older_log_lines: int = 100
    unnamed_ms: int = 2_000
    fan_out_lease_ms: int = 5_000
    output_bytes: int = OUTPUT_BYTES
    user_queue: int = 100_000
    task_events: int = 250
    """How many events of a node task are kept, the newest."""
    notifications: int = 1_000
    """How many notifications of a user are kept, the newest,"""
    notification_retention_ms: int = 7 * 24 * 3600 * 1000
    """and for how long at most."""
    keep_cycles: int = 100
    """How many ended runs of a flow are kept, unless the flow says otherwise."""
    settle_ms: int = 60_000
    """Runs that ended less than this ago are kept, whatever the flow says."""
    confirm_ms: int = 3600 * 1000
    """How often the scheduler is asked whether a run is still open."""
    clean_keys: int = 500
    cleaner_lease_ms: int = 15_000
    silent_ms: int = 60_000
    retries: int = 10
    """Further attempts that a flow may always have within a minute,"""
    retry_percent: int = 20
    """or this many per hundred attempts begun, whichever is more."""


MAX_AHEAD_MS = 1_000
"""How long before its planned time a node task may be handed out, to begin at that time."""
