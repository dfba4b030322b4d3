"""A worker's settings for traces, metrics and logs, from the same environment variables that servers use."""

import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tradewind.server.visible import visible
from tradewind.worker.errors import WorkerError

if TYPE_CHECKING:
    from tradewind.server.settings import TelemetrySettings
    from tradewind.worker.metrics import WorkerMetrics

_VARIABLES = (
    "TRADEWIND_OTLP_ENDPOINT",
    "TRADEWIND_TRACE_SAMPLING",
    "TRADEWIND_METRICS_PORT",
    "TRADEWIND_METRICS_HOST",
    "TRADEWIND_LOG_FORMAT",
    "TRADEWIND_LOG_LEVEL",
)


class _Lines(logging.Formatter):
    """Writes lines for people, in UTC as the services and commands do; what they hold does nothing to the terminal."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def telemetry_settings() -> "TelemetrySettings | None":
    """Return the settings, or None if the environment has none of them. Raises WorkerError for invalid settings."""
    if not any(map(os.environ.get, _VARIABLES)):
        return None
    # Imported only if something is set: the import takes longer than most workers take to start.
    from tradewind.server.settings import SettingsError, TelemetrySettings, load_settings

    try:
        return load_settings(TelemetrySettings)
    except SettingsError as error:
        raise WorkerError(f"invalid settings:\n{error}") from error


def configure_worker_logging(least: int | None = None) -> None:
    """Send what the worker and its nodes log to stderr.

    The lines are for people, or with TRADEWIND_LOG_FORMAT=json one object per line, with `trace_id` and `span_id` in a
    span. `least` is the least level; None takes TRADEWIND_LOG_LEVEL, or else INFO. Raises WorkerError for invalid
    settings.
    """
    settings = telemetry_settings()
    if least is None:
        least = logging.getLevelNamesMapping()[settings.log_level.upper()] if settings is not None else logging.INFO
    if settings is not None:
        from tradewind.server.logs import configure_logging, quieten_logging

        if settings.log_format == "json":
            configure_logging(settings.log_level, "json")
            logging.getLogger().setLevel(least)
            return
        quieten_logging(settings.log_level)
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=least, handlers=[handler])


async def open_metrics(capacity: int, running: Callable[[], int]) -> "WorkerMetrics | None":
    """Serve the metrics of a worker, if the settings name a port; the caller closes them.

    `running()` is how many node tasks it holds, of at most `capacity`. Raises WorkerError when the port is taken.
    """
    settings = telemetry_settings()
    if settings is None or not settings.metrics_port:
        return None
    from tradewind.worker.metrics import WorkerMetrics

    metrics = WorkerMetrics(settings.metrics_host or "127.0.0.1", settings.metrics_port, capacity, running)
    try:
        await metrics.open()
    except ConnectionError as error:
        raise WorkerError(str(error)) from error
    return metrics
