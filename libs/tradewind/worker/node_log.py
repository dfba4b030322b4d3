"""The log of a node: lines for the log of its cycle."""

import logging
import time
import traceback
from collections.abc import Mapping
from typing import Any

from tradewind.worker.attempt import Attempt
from tradewind.worker.texts import LOG_BYTES, clip
from tradewind.worker.yields import YIELD

_NAMES = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LEVELS: dict[object, str] = {
    **{name: name for name in _NAMES},
    **{logging.getLevelName(name): name for name in _NAMES},
    "WARN": "WARNING",
    "FATAL": "CRITICAL",
}
_LEVEL_CHOICES = ", ".join(_NAMES).lower()


class NodeLog:
    """Writes lines to the log of the cycle: `ctx.log("bought")`, `ctx.log.warning("spread is %s", spread)`.

    Arguments fill `%` placeholders as in the standard library; keywords are appended as `key=value`. A line is cut at
    8 KiB. Lines beyond what the worker can send are dropped, and the log says how many. Text that is printed, or logged
    with `logging`, does not appear here. Awaiting a line is optional, as with `ctx.progress`.
    """

    __slots__ = ("_attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    # Not typed as Awaitable: type checkers would insist on an await, which plain functions cannot have.
    def __call__(self, message: object, *args: object, level: str | int = "INFO", **fields: object) -> Any:
        """Write a line of level INFO or another: `level="warning"`, or a number from the standard library."""
        name = _level_name(level)
        if name is None:
            # A mistake in a log line must not fail a node.
            hint = f"(level={_safe_repr(level)} is not one of {_LEVEL_CHOICES})"
            return self._write("INFO", f"{_format(message, args)} {hint}", (), fields)
        return self._write(name, message, args, fields)

    def debug(self, message: object, *args: object, **fields: object) -> Any:
        """Write a line of level DEBUG."""
        return self._write("DEBUG", message, args, fields)

    def info(self, message: object, *args: object, **fields: object) -> Any:
        """Write a line of level INFO."""
        return self._write("INFO", message, args, fields)

    def warning(self, message: object, *args: object, **fields: object) -> Any:
        """Write a line of level WARNING."""
        return self._write("WARNING", message, args, fields)

    def error(self, message: object, *args: object, **fields: object) -> Any:
        """Write a line of level ERROR."""
        return self._write("ERROR", message, args, fields)

    def exception(self, message: object, *args: object, **fields: object) -> Any:
        """Write a line of level ERROR with the traceback of the exception being handled."""
        return self._write("ERROR", f"{_format(message, args)}\n{traceback.format_exc().rstrip()}", (), fields)

    def critical(self, message: object, *args: object, **fields: object) -> Any:
        """Write a line of level CRITICAL."""
        return self._write("CRITICAL", message, args, fields)

    def _write(self, level: str, message: object, args: tuple[object, ...], fields: dict[str, object]) -> Any:
        attempt = self._attempt
        if not attempt.settled:
            text = " ".join([_format(message, args), *(f"{key}={_safe_repr(value)}" for key, value in fields.items())])
            attempt.reports.log(attempt.token, level, clip(attempt.redacted(text), LOG_BYTES), time.time_ns())
        return YIELD


def _level_name(level: object) -> str | None:
    name = level.upper() if isinstance(level, str) else level
    return _LEVELS.get(name) if isinstance(name, str | int) else None


def _format(message: object, args: tuple[object, ...]) -> str:
    # A slip in a log line must not fail a node, and neither must an object that cannot be printed.
    try:
        text = str(message)
    except Exception:
        text = _safe_repr(message)
    if not args:
        return text
    try:
        return text % (args[0] if len(args) == 1 and isinstance(args[0], Mapping) and args[0] else args)
    except Exception:
        return f"{text} ({', '.join(map(_safe_repr, args))})"


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__} that cannot be printed>"
