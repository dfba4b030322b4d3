"""Lines of execution logs."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.scheduler.v1 import cycle_pb2
from tradewind.client.wire import Members, moment


class LogLevel(StrEnum):
    """The severity of a line."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"
    UNKNOWN = "unknown"


class LogSource(StrEnum):
    """Who wrote a line."""

    SCHEDULER = "scheduler"
    NODE = "node"
    SYSTEM = "system"
    USER = "user"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log; `node_id` is empty for lines of the cycle itself, `log_id` is the position of the line.

    For an ad-hoc task or a batch there is no flow, and `node_id` is the index of the item.
    """

    log_id: str
    flow_id: str
    cycle: int
    node_id: str
    level: LogLevel
    source: LogSource
    message: str
    created_at: datetime | None


_LEVELS = Members(cycle_pb2.LogLevel, LogLevel)
_SOURCES = Members(cycle_pb2.LogSource, LogSource)


def log_line_from(message: cycle_pb2.LogLine) -> LogLine:
    """Read a line."""
    return LogLine(
        log_id=message.log_id,
        flow_id=message.flow_id,
        cycle=message.cycle,
        node_id=message.node_id,
        level=_LEVELS[message.level],
        source=_SOURCES[message.source],
        message=message.message,
        created_at=moment(message, "created_at"),
    )


def node_line_from(message: node_task_pb2.NodeLog) -> LogLine:
    """Read a line that a node wrote outside any flow."""
    level = message.level.lower()
    return LogLine(
        log_id=message.log_id,
        flow_id="",
        cycle=0,
        node_id=message.node_id,
        level=LogLevel(level) if level in list(LogLevel) else LogLevel.UNKNOWN,
        source=LogSource(message.source) if message.source in list(LogSource) else LogSource.UNKNOWN,
        message=message.message,
        created_at=moment(message, "created_at"),
    )
