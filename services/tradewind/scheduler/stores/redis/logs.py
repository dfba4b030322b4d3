"""The scheduler's log lines in Redis."""

from tradewind.scheduler.domain.log_line import LogLevel, LogLine, LogSource
from tradewind.scheduler.stores.redis.scripts import Scripted
from tradewind.server.reading import reading
from tradewind.server.redis.records import read_each


class RedisLogs:
    """Implements LogLines."""

    def __init__(self, scripted: Scripted) -> None:
        self._client = scripted.client
        self._keys = scripted.keys

    async def read(self, flow_id: str, cycle: int) -> list[LogLine]:
        key = self._keys.logs(flow_id, cycle)
        (lines,) = await read_each(self._client, [key], "LRANGE", 0, -1)
        with reading(key, lines):
            return [_line(flow_id, cycle, place, text.decode()) for place, text in enumerate(lines)]


def _line(flow_id: str, cycle: int, place: int, text: str) -> LogLine:
    at_ms, level, source, message = text.split(" ", 3)
    return LogLine(f"{at_ms}-{place}", flow_id, cycle, "", LogLevel(level), LogSource(source), message, int(at_ms))
