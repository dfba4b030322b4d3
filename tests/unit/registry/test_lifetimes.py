"""When a worker counts as offline, and how its status follows."""

import pytest

from tradewind.registry.domain.limits import Lifetimes
from tradewind.registry.domain.worker import Worker, WorkerRecord, WorkerStatus

LIFETIMES = Lifetimes()
NOW = 1_700_000_000_000


def test_worker_is_alive_for_sixty_seconds_and_on_record_for_another_day() -> None:
    assert LIFETIMES.alive(NOW, NOW)
    assert LIFETIMES.alive(NOW - 59_999, NOW)
    assert not LIFETIMES.alive(NOW - 60_000, NOW)
    day = 24 * 3600 * 1000
    assert LIFETIMES.on_record(NOW - 60_000 - day + 1, NOW)
    assert not LIFETIMES.on_record(NOW - 60_000 - day, NOW)
    assert LIFETIMES.lapse(NOW) == NOW + 60_000 + day


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"heartbeat_interval": 0}, "must be positive"),
        ({"heartbeat_interval": 20_001}, "at least three heartbeat intervals"),
        ({"time_to_live": 59_999}, "at least three heartbeat intervals"),
        ({"retention": -1}, "must not be negative"),
    ],
)
def test_inconsistent_lifetimes_are_rejected(values: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Lifetimes(**values)


@pytest.mark.parametrize(
    ("alive", "draining", "status"),
    [
        (True, False, WorkerStatus.ACTIVE),
        (True, True, WorkerStatus.DRAINING),
        (False, False, WorkerStatus.OFFLINE),
        (False, True, WorkerStatus.OFFLINE),
    ],
)
def test_status_follows_from_liveness_and_draining(alive: bool, draining: bool, status: WorkerStatus) -> None:
    record = WorkerRecord(Worker("w", "i", 1), NOW, NOW, draining, alive)
    assert record.status is status


def test_load_is_the_share_of_capacity_in_use() -> None:
    assert Worker("w", "i", 4, running=1).load == 0.25
