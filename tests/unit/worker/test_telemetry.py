"""Where a worker logs."""

import logging
import re
from collections.abc import Iterator

import pytest
import structlog

from tests.zones import machine_in
from tradewind.worker.telemetry import configure_worker_logging


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    """Begin as a program that has not configured its logging."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    if before is not None:
        structlog.configure(**before)


@pytest.mark.parametrize("level", ["info", "warning"])
def test_lines_for_people_go_to_stderr_from_the_level_on(
    level: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_LOG_LEVEL", level)
    configure_worker_logging()
    structlog.get_logger("metrics").info("serving_metrics")
    logged = capfd.readouterr()
    assert logged.out == ""
    assert ("serving_metrics" in logged.err) == (level == "info")


def test_lines_for_people_begin_with_time_in_utc(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    with machine_in("Pacific/Honolulu"):
        configure_worker_logging(root.level)
        facts = {"levelno": logging.INFO, "levelname": "INFO", "msg": "connected", "created": 1_900_000_000}
        record = logging.makeLogRecord(facts)
        root.handle(record)
    assert re.fullmatch(r"2030-03-17T17:46:40\.\d\d\dZ INFO    connected\n", capfd.readouterr().err)


def test_text_of_an_exception_does_not_act_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    configure_worker_logging(root.level)
    try:
        raise ValueError("answer: \x1b]0;root\x07\x00\r")
    except ValueError as error:
        logging.getLogger("nodes").exception("failed: %s", error)
    first, *traceback = capfd.readouterr().err.splitlines()
    assert first.endswith(r"failed: answer: \x1b]0;root\x07\x00\r")
    assert traceback[0] == "Traceback (most recent call last):"
    assert traceback[-1] == r"ValueError: answer: \x1b]0;root\x07\x00\r"
