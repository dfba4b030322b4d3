"""Logs: one JSON object per line with trace ids, at the configured level."""

import io
import json
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import structlog
from opentelemetry import context as otel_context
from redis.exceptions import ResponseError

from tradewind.server.logs import configure_logging, quieten_logging
from tradewind.server.telemetry import context_from

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, config = root.handlers[:], root.level, structlog.get_config()
    yield
    structlog.configure(**config)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_lines_carry_level_time_and_trace(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    log = structlog.get_logger("x")
    token = otel_context.attach(context_from(PARENT))
    log.info("something", flow_id="momentum")
    otel_context.detach(token)
    log.debug("too quiet")
    logging.getLogger("some.library").warning("from %s", "a library")
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["something", "from a library"]
    assert lines[0]["flow_id"] == "momentum"
    assert lines[0]["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert lines[0]["level"] == "info"
    assert lines[0]["timestamp"].endswith("Z")
    assert (lines[1]["logger"], lines[1]["level"]) == ("some.library", "warning")


def test_an_exception_is_one_json_object_with_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging("warning", "json")
    try:
        raise KeyError("lost")
    except KeyError:
        structlog.get_logger("x").exception("call_failed", correlation_id="1")
    [line] = capfd.readouterr().err.splitlines()
    assert "KeyError: 'lost'" in json.loads(line)["exception"]


def test_console_format_shows_event_and_fields(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug", "console")
    structlog.get_logger("x").debug("hello", who="you")
    error = capfd.readouterr().err
    assert "hello" in error
    assert "who=you" in error


def unconfigured(level: str) -> None:
    structlog.reset_defaults()
    quieten_logging(level)


@pytest.mark.parametrize(
    "configure",
    [configure_logging, partial(configure_logging, format="json"), unconfigured],
    ids=["console", "json", "unconfigured"],
)
def test_tracebacks_omit_values_of_variables_and_colours_outside_a_terminal(
    capfd: pytest.CaptureFixture[str], configure: Callable[[str], None]
) -> None:
    configure("warning")
    password = "-".join(["hunter", "two"])
    try:
        raise KeyError("lost")
    except KeyError:
        structlog.get_logger("x").exception("call_failed")
    error = capfd.readouterr().err
    assert "lost" in error
    assert password not in error
    assert "\x1b" not in error


def test_unwritable_standard_error_loses_only_its_own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    configure_logging("warning", "console")
    log = structlog.get_logger("x")
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "__stderr__", closed)
    log.warning("lost")
    monkeypatch.setattr(sys, "__stderr__", None)
    log.warning("lost too")
    monkeypatch.setattr(sys, "__stderr__", output := io.StringIO())
    log.warning("written")
    logging.getLogger("some.library").warning("written too")
    assert [line.split("] ")[1].split()[0] for line in output.getvalue().splitlines()] == ["written", "written"]


def test_a_pipe_that_nobody_reads_holds_nothing_up_and_what_is_lost_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    configure_logging("warning", "json")
    log = structlog.get_logger("x")
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as stream, open(reader, "rb") as pipe:
        monkeypatch.setattr(sys, "__stderr__", stream)
        os.set_blocking(reader, False)
        for number in range(1000):
            log.warning("whole", number=number, filling="n" * 1000)
        text = os.read(reader, select.PIPE_BUF)
        log.warning("c" * 30_000)
        text += pipe.read()
        log.warning("again")
        log.warning("and again")
        text += pipe.read()
    lines = text.splitlines()
    (cut,) = (line for line in lines if line.endswith(b"cc"))
    *written, again, last = (json.loads(line) for line in lines if line is not cut)
    whole = [line["number"] for line in written]
    assert whole == list(range(len(whole)))
    assert (again["lines_lost"], "lines_lost" in last) == (1001 - len(whole), False)


@pytest.mark.parametrize("configure", [configure_logging, unconfigured], ids=["console", "unconfigured"])
def test_logging_without_standard_error_does_not_fail(
    monkeypatch: pytest.MonkeyPatch, configure: Callable[[str], None]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "__stderr__", None)
    configure("warning")
    structlog.get_logger("x").warning("lost")


@pytest.mark.parametrize("format", ["console", "json"])
def test_store_error_is_logged_with_its_message(format: str, capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging("warning", format)
    structlog.get_logger("x").warning("flush_failed", error=ResponseError("NOPERM no permissions for the key"))
    assert "ResponseError: NOPERM no permissions for the key" in capfd.readouterr().err
