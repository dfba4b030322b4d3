"""The retries of a node, as a flow defines them."""

from dataclasses import dataclass
from typing import Any

from tradewind.scheduler.domain.fields import Fields
from tradewind.scheduler.domain.intervals import format_duration

INITIAL_MS = 1_000
FACTOR = 2.0
MAXIMUM_MS = 60_000
JITTER = 0.1

_FIELDS = ("attempts", "initial", "factor", "maximum", "jitter", "non_retryable")
_MAX_ATTEMPTS = 1000
_LARGEST_FACTOR = 1000
_LONGEST_WAIT_MS = 365 * 86_400_000
_MAX_NAMES = 100
_LONGEST_NAME = 256


@dataclass(frozen=True, slots=True)
class RetryDefinition:
    """How often a node may be tried in all, and the waits between attempts.

    The first wait is `initial_ms`, each further wait `factor` times the previous one, up to `maximum_ms`. Each is
    shortened by a random part of up to `jitter` of it. `non_retryable` names exceptions and codes that are not retried.
    """

    attempts: int
    initial_ms: int = INITIAL_MS
    factor: float = FACTOR
    maximum_ms: int = MAXIMUM_MS
    jitter: float = JITTER
    non_retryable: tuple[str, ...] = ()

    def to_weather(self) -> dict[str, Any]:
        """Return it in Weather Syntax, without fields at their defaults."""
        weather: dict[str, Any] = {"attempts": self.attempts}
        if self.initial_ms != INITIAL_MS:
            weather["initial"] = format_duration(self.initial_ms)
        if self.factor != FACTOR:
            weather["factor"] = _number(self.factor)
        if self.maximum_ms != max(MAXIMUM_MS, self.initial_ms):
            weather["maximum"] = format_duration(self.maximum_ms)
        if self.jitter != JITTER:
            weather["jitter"] = _number(self.jitter)
        if self.non_retryable:
            weather["non_retryable"] = list(self.non_retryable)
        return weather


def read_retry(node: Fields) -> RetryDefinition | None:
    """Read the field `retry` of a node; None when it is absent or at fault."""
    fields = node.nested("retry")
    if fields is None:
        return None
    fields.refuse_unknown(_FIELDS)
    fields.required("attempts", f"is required: how many attempts the node has in all, 1 to {_MAX_ATTEMPTS}")
    attempts = fields.integer("attempts", 1, 1, _MAX_ATTEMPTS)
    initial_ms = fields.duration("initial", INITIAL_MS, max_ms=_LONGEST_WAIT_MS)
    factor = fields.number("factor", FACTOR, 1, _LARGEST_FACTOR)
    maximum_ms = fields.duration("maximum", max(MAXIMUM_MS, initial_ms), max_ms=_LONGEST_WAIT_MS)
    jitter = fields.number("jitter", JITTER, 0, 1)
    names = fields.texts("non_retryable", _MAX_NAMES, _LONGEST_NAME)
    if not fields.faulty and maximum_ms < initial_ms:
        fields.fault("maximum", f"must not be less than initial, which is {format_duration(initial_ms)}")
    return None if fields.faulty else RetryDefinition(attempts, initial_ms, factor, maximum_ms, jitter, names)


def _number(value: float) -> int | float:
    return int(value) if value == int(value) else value
