"""What is done about schedules on record whose time zones are not known here: nothing, until a replica knows them."""

from functools import lru_cache

import structlog

RETRY_MS = 30_000
"""After this time, what is due in an unknown time zone is offered again, perhaps to a replica that knows it."""

_log = structlog.get_logger(__name__)


@lru_cache(maxsize=1000)
def log_unknown_zone(time_zone: str) -> None:
    """Log once that nothing fires here whose schedule is in this time zone."""
    hint = "what is scheduled in it does not fire here; update tzdata on this machine, and restart this server"
    _log.error("time_zone_unknown", time_zone=time_zone, hint=hint)
