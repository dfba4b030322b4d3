"""How long a node may take, in its various phases."""

from dataclasses import dataclass
from typing import Any

from tradewind.flow.values import Duration, duration, given_fields


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits of a node: seconds, text such as "5m", or a timedelta; 0 is no limit, None the server's default.

    `schedule_to_start` limits its wait for a worker (5 min; 0 only outside flows), `start_to_close` one attempt
    (5 min), `total` everything from when it is first ready to its end (none), `heartbeat` how long an attempt may
    report no progress (none).
    """

    schedule_to_start: Duration | None = None
    start_to_close: Duration | None = None
    total: Duration | None = None
    heartbeat: Duration | None = None

    def to_weather(self, path: str = "timeouts") -> dict[str, Any]:
        """Return them in Weather Syntax; FlowError reports `path` as their place."""
        given = {name: getattr(self, name) for name in ("schedule_to_start", "start_to_close", "total", "heartbeat")}
        return given_fields(duration, given, path)
