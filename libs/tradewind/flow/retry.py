"""How often a node may be tried."""

from dataclasses import dataclass
from typing import Any

from tradewind.flow.values import Duration, duration, json_copy


@dataclass(frozen=True, slots=True)
class Retry:
    """Up to `attempts` attempts of a node in all; None leaves a field at the server's default.

    The first wait is `initial` (1 s), each further wait `factor` (2) times as long, up to `maximum` (1 min); a share of
    `jitter` (0.1) of each wait is random. `non_retryable` names exceptions, such as "ValueError", or codes, such as
    "TIMEOUT", after which there is no further attempt.
    """

    attempts: int
    initial: Duration | None = None
    factor: float | None = None
    maximum: Duration | None = None
    jitter: float | None = None
    non_retryable: tuple[str, ...] | list[str] = ()

    def to_weather(self, path: str = "retry") -> dict[str, Any]:
        """Return it in Weather Syntax; FlowError reports `path` as its place."""
        weather: dict[str, Any] = {"attempts": self.attempts}
        for name in ("initial", "factor", "maximum", "jitter"):
            value = getattr(self, name)
            if value is not None:
                is_time = name in ("initial", "maximum")
                at = f"{path}.{name}"
                weather[name] = duration(value, at) if is_time else json_copy(value, at)
        if self.non_retryable:
            weather["non_retryable"] = json_copy(self.non_retryable, f"{path}.non_retryable")
        return weather
