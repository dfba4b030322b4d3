"""Logs something that goes wrong again and again in two lines: one when it begins, one when it is over."""

import asyncio
from dataclasses import dataclass

import structlog

_OVER_AFTER_S = 10.0


@dataclass(slots=True)
class _Spell:
    begun_s: float
    last_s: float
    times: int = 1


class Spells:
    """Logs `event` when it happens, and `over` after 10 s without it: how often it happened, and for how long."""

    def __init__(self, log: structlog.typing.FilteringBoundLogger, event: str, over: str) -> None:
        self._log = log
        self._event = event
        self._over = over
        self._spells: dict[str, _Spell] = {}

    def note(self, what: str, **facts: object) -> None:
        """Note that it happened, perhaps again; each `what` has its own spells. The log has the first one's facts."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        spell = self._spells.get(what)
        if spell is None:
            self._spells[what] = _Spell(now_s, now_s)
            self._log.warning(self._event, what=what, **facts)
            loop.call_later(_OVER_AFTER_S, self._look, what)
        else:
            spell.last_s = now_s
            spell.times += 1

    def _look(self, what: str) -> None:
        loop, spell = asyncio.get_running_loop(), self._spells[what]
        left_s = spell.last_s + _OVER_AFTER_S - loop.time()
        if left_s > 0:
            loop.call_later(left_s, self._look, what)
            return
        del self._spells[what]
        seconds = round(spell.last_s - spell.begun_s, 1)
        self._log.warning(self._over, what=what, times=spell.times, seconds=seconds)
