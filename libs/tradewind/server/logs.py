"""Structured logs with trace ids."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog

from tradewind.server.log_output import StandardError, tell_loss
from tradewind.server.telemetry import trace_ids


def configure_logging(level: str = "info", format: str = "console") -> None:
    """Send this process's logs, including those of libraries, to stderr: `console` for people, `json` for machines."""
    number = logging.getLevelNamesMapping()[level.upper()]
    shared, renderers = _shared(), [_console()]
    if format == "json":
        renderers = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=_to_standard_error(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(cast(TextIO, StandardError()))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)


def quieten_logging(level: str) -> None:
    """Keep logs below `level` off the standard error of a program that has not configured its logging."""
    if not structlog.is_configured():
        structlog.configure(
            processors=[*_shared(), _console()],
            wrapper_class=structlog.make_filtering_bound_logger(level),
            logger_factory=_to_standard_error(),
        )


def _shared() -> list[structlog.typing.Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _add_trace_ids,
        _tell_error,
        tell_loss,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _console() -> structlog.typing.Processor:
    colors = sys.stderr is not None and sys.stderr.isatty()
    # Without the values of variables, which the default shows: they include passwords and what users send.
    tracebacks = structlog.dev.RichTracebackFormatter(color_system="truecolor" if colors else "auto", show_locals=False)
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=tracebacks)


def _to_standard_error() -> structlog.PrintLoggerFactory:
    return structlog.PrintLoggerFactory(cast(TextIO, StandardError()))


def _add_trace_ids(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event.update(trace_ids())
    return event


def _tell_error(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Show an exception as its type and message: redis-py's exceptions leave the message out of their repr."""
    error = event.get("error")
    if isinstance(error, BaseException):
        event["error"] = f"{type(error).__name__}: {error}"
    return event
