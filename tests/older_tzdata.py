"""A replica whose tzdata does not know a time zone that another has accepted."""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest

from tradewind.server.schedules import grids
from tradewind.server.schedules.unknown_zones import log_unknown_zone
from tradewind.trigger.stores import schedule_codec


def forget_zone(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    """Let servers in this process, from now on, not know a time zone."""

    def older(name: str) -> ZoneInfo:
        if name == zone:
            raise ZoneInfoNotFoundError(name)
        return ZoneInfo(name)

    monkeypatch.setattr(grids, "ZoneInfo", older)
    schedule_codec.decode.cache_clear()
    log_unknown_zone.cache_clear()
