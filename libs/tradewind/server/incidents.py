"""Logs something that goes wrong again and again in two lines: one when it begins, one when it is over."""

import asyncio
from dataclasses import dataclass

import structlog

_OVER_AFTER_S = 10.0


@dataclass(slots=True)
class _Incident:
    started_s: float
    last_s: float
    times: int = 1


class IncidentLog:
    """Logs `event` when it happens, and `over` after 10 s without it: how often it happened, and for how long."""

    def __init__(self, log: structlog.typing.FilteringBoundLogger, event: str, over: str) -> None:
        self._log = log
        self._event = event
        self._over = over
        self._incidents: dict[str, _Incident] = {}

    def note(self, what: str, **facts: object) -> None:
        """Note that it happened, perhaps again; each `what` has its own incidents. Only the first facts are logged."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        incident = self._incidents.get(what)
        if incident is None:
            self._incidents[what] = _Incident(now_s, now_s)
            self._log.warning(self._event, what=what, **facts)
            loop.call_later(_OVER_AFTER_S, self._check_over, what)
        else:
            incident.last_s = now_s
            incident.times += 1

    def note_error(self, error: BaseException, **facts: object) -> None:
        """Note an error; all of one class are the same incident, however their texts differ."""
        self.note(type(error).__name__, error=error, **facts)

    def _check_over(self, what: str) -> None:
        loop, incident = asyncio.get_running_loop(), self._incidents[what]
        left_s = incident.last_s + _OVER_AFTER_S - loop.time()
        if left_s > 0:
            loop.call_later(left_s, self._check_over, what)
            return
        del self._incidents[what]
        seconds = round(incident.last_s - incident.started_s, 1)
        self._log.warning(self._over, what=what, times=incident.times, seconds=seconds)
