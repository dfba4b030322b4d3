"""The process of a server: settings, signals, and a shutdown in bounded time."""

import asyncio
import faulthandler
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import structlog
import uvloop

from tradewind.server.access.gate_settings import gate_of
from tradewind.server.bootstrap import STOP_S, Server, Service, StartError
from tradewind.server.closed_streams import replace_closed_streams
from tradewind.server.connection_limits import TooFewFilesError, raise_open_files
from tradewind.server.ending import start_unless
from tradewind.server.logs import configure_logging
from tradewind.server.metrics import MetricsEndpoint
from tradewind.server.redis.watch import StoreWatch
from tradewind.server.settings import CommonSettings, SettingsError, load_settings, print_settings, text_of
from tradewind.server.side_tasks import SideTasks
from tradewind.server.telemetry import open_tracing

_END_S = 15.0
"""How long a process may take beyond its drain: for the gate, its service and the last spans."""

_GARBAGE = 7_000
"""How many additional objects trigger the garbage collector; Python's own number is 700."""

_log = structlog.get_logger(__name__)

ServerSettings = TypeVar("ServerSettings", bound=CommonSettings)


def run(
    build: Callable[[ServerSettings], Service | Sequence[Service]],
    settings: type[ServerSettings],
    name: str = "tradewind",
    argv: Sequence[str] | None = None,
) -> NoReturn:
    """Run as the process of a server: read `settings`, build, serve until SIGTERM or SIGINT, drain, and exit.

    Exits 0 after a signal, in bounded time (a second signal ends it at once), 1 when it cannot start, 2 when the
    settings or arguments are wrong. `build` runs inside the event loop. `--help-settings` prints the settings.
    """
    replace_closed_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--help-settings"]:
        print_settings(settings)
        sys.exit(0)
    if arguments:
        _fail(f"unknown argument {arguments[0]}: settings come from the environment, see --help-settings", 2)
    try:
        values = load_settings(settings)
    except SettingsError as error:
        _fail(f"invalid settings:\n{error}", 2)
    configure_logging(values.log_level, values.log_format)
    try:
        raise_open_files()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(build, values, name))
    except (TooFewFilesError, StartError, ConnectionError) as error:
        if values.log_format == "json":
            _log.error("cannot_start", service=name, error=str(error))
            sys.exit(1)
        _fail(f"{name} cannot start: {error}", 1)
    # Nothing is left to do, and while the interpreter shuts down, gRPC's threads may wait for it forever.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


async def _serve(build: Callable[[Any], Service | Sequence[Service]], values: CommonSettings, name: str) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, ended, values.drain_seconds)
    server = _server_of(build, values, name)
    metrics = MetricsEndpoint(values.metrics_host or values.host, values.metrics_port)
    await metrics.open()
    watching = SideTasks()
    if values.metrics_port:
        watching.begin(store_watch_of(values).run())
    try:
        if not await start_unless(ended, server.start()):
            return
        # The objects that exist now stay for good: the collector need not look at them again and again.
        gc.collect()
        gc.freeze()
        # Reference counts free nearly everything that calls leave behind: look for cycles a tenth as often.
        gc.set_threshold(_GARBAGE, 10, 10)
        await ended.wait()
    finally:
        await server.stop()
        await watching.end()
        await metrics.close()


def _server_of(build: Callable[[Any], Service | Sequence[Service]], values: CommonSettings, name: str) -> Server:
    try:
        built = build(values)
        services = built if isinstance(built, Sequence) else [built]
        gate = gate_of(values, services)
    except ValueError as error:
        raise StartError(str(error)) from error
    return Server(
        services,
        host=values.host,
        port=values.port,
        drain_s=values.drain_seconds,
        max_message_bytes=values.max_message_bytes,
        max_connection_age_s=values.max_connection_age_seconds,
        max_connection_idle_s=values.max_connection_idle_seconds,
        max_connections=values.max_connections,
        tracing=open_tracing(name, values.otlp_endpoint, values.trace_sampling),
        gate=gate,
        tls=values,
    )


def store_watch_of(values: CommonSettings) -> StoreWatch:
    """Return what asks a server's store about itself, as the user for metrics or else as the server's own."""
    user, password = values.metrics_store_user, values.metrics_store_password
    if user is None:
        user, password = values.store_user, values.store_password
    return StoreWatch(values.store_url, user, text_of(password), values.metrics_seconds, values.store_tls_files())


def _on_signal(ended: asyncio.Event, drain_s: float) -> None:
    if ended.is_set():
        # Asked twice: the sender does not want to wait for calls in flight.
        os._exit(130)
    ended.set()
    last = threading.Timer(drain_s + _END_S, _give_up, [asyncio.get_running_loop(), drain_s + _END_S])
    last.daemon = True
    last.start()
    # An interpreter that hangs while it shuts down no longer runs Python threads.
    faulthandler.dump_traceback_later(drain_s + _END_S + STOP_S, exit=True)


def _give_up(loop: asyncio.AbstractEventLoop, after_s: float) -> None:
    """End the process although something goes on, a thread or a call that ignores cancellation; log what it is."""
    _log.error("tasks_did_not_end", after_s=after_s, left=[repr(task) for task in asyncio.all_tasks(loop)])
    faulthandler.dump_traceback()
    os._exit(0)


def _fail(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr)
    sys.exit(code)
