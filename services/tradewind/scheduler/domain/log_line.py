"""Lines of a cycle's execution log."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class LogLevel(StrEnum):
    """The severity of a line, lowest first."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"

    @property
    def severity(self) -> int:
        """Orders levels: 1 for DEBUG to 5 for CRITICAL."""
        return _SEVERITY[self]


_SEVERITY = {level: severity for severity, level in enumerate(LogLevel, 1)}


class LogSource(StrEnum):
    """Who wrote a line."""

    SCHEDULER = "scheduler"
    NODE = "node"
    SYSTEM = "system"
    USER = "user"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line; `log_id` is unique within its cycle and source, `node_id` is empty for the cycle itself."""

    log_id: str
    flow_id: str
    cycle: int
    node_id: str
    level: LogLevel
    source: LogSource
    text: str
    at_ms: int


class LogText(NamedTuple):
    """A message from the scheduler for a run's log."""

    level: LogLevel
    text: str
