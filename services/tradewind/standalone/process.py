"""The process of the whole stack: its start, its signals and its orderly end."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import structlog
import uvloop

from tradewind.access.app import FIRST_ADMIN
from tradewind.server.connection_limits import TooFewFilesError, raise_open_files
from tradewind.server.ending import start_unless
from tradewind.server.logs import configure_logging
from tradewind.server.settings import SettingsError
from tradewind.standalone.stack import Standalone, StandaloneError

_AT_LOCALHOST = {"localhost", "127.0.0.1", "0.0.0.0", "::"}
"""The hosts of a stack that callers on this machine reach at localhost, which need not be ::1."""
_EXAMPLE = Path("examples/momentum/flow.json")
"""The example, when the stack is started in a clone of the repository."""
_STEPS = (
    "  tradewind worker examples.momentum.nodes",
    f"  tradewind flow register momentum {_EXAMPLE}",
    "  tradewind flow start momentum",
    "  tradewind flow watch momentum",
)
_PROJECT = Path("nodes.py")
"""What is here when the stack is started in a project, for which `tradewind init` has said what comes next."""
_STEPS_ELSEWHERE = ("  tradewind init hello                            # a small project to begin with",)

_log = structlog.get_logger(__name__)


def run(build: Callable[[], Standalone]) -> int:
    """Run the stack until SIGINT, SIGTERM or the end of its terminal, and return the exit code.

    It is 0 after a signal, 1 when the stack cannot start, 2 when its settings are wrong. A second SIGINT or SIGTERM
    ends the process at once.
    """
    stack = None
    try:
        stack = build()
        configure_logging(stack.settings.log_level, stack.settings.log_format)
        raise_open_files()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(stack))
    except (StandaloneError, TooFewFilesError) as error:
        if stack is not None and stack.settings.log_format == "json":
            _log.error("cannot_start", error=str(error))
        else:
            print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error.__cause__, SettingsError) else 1
    return 0


async def _serve(stack: Standalone) -> None:
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, stop_requested)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        # A closed terminal sends it, and its shell sends it once more.
        loop.add_signal_handler(signal.SIGHUP, stop_requested.set)
    try:
        if not await start_unless(stop_requested, stack.start()):
            return
        # The objects that exist by now stay for good: the garbage collector need not examine them again and again.
        gc.collect()
        gc.freeze()
        print(welcome(stack), flush=True)
        await stop_requested.wait()
        with suppress(OSError):  # the terminal is gone
            print("stopping", flush=True)
    finally:
        await stack.stop()


def _on_signal(stop_requested: asyncio.Event) -> None:
    if stop_requested.is_set():
        # A second signal means: do not wait for calls in flight.
        os._exit(130)
    stop_requested.set()


def welcome(stack: Standalone) -> str:
    """Return what a person reads when the stack is up: its address, and what to try next."""
    settings = stack.settings
    address = stack.address
    if settings.host in _AT_LOCALHOST:
        address = f"localhost:{address.rpartition(':')[2]}"
    location = f"data in {settings.data}" if not settings.store_url else "data in the given store"
    lines = [f"Tradewind {version('tradewind')} is up at {address}, {location}. Ctrl-C stops it; the data stays."]
    steps = []
    if address != "localhost:7700":
        steps.append(f"  export TRADEWIND_ADDRESS={address}")
    if settings.tls_ca:
        steps.append(f"  export TRADEWIND_TLS_CA={settings.tls_ca}")
    if settings.tls_require_client_cert:
        steps.append("  export TRADEWIND_TLS_CERT=YOUR.pem TRADEWIND_TLS_KEY=YOUR.key   # signed by that CA")
    if settings.auth and stack.admin_token_file.exists():
        steps.append(f"  tradewind login --token-file {stack.admin_token_file}")
        if stack.new_admin_token is not None:
            lines.append(f"The first admin's token, shown this once: {stack.new_admin_token}")
    elif settings.auth:
        lines.append(
            f'No token was made for "{FIRST_ADMIN}", who is not an admin, because others are: log in with a token of '
            "theirs. If none of them has one any more, see docs/access.md."
        )
    if not stack.has_flows:
        steps += _STEPS if _EXAMPLE.exists() else () if _PROJECT.exists() else _STEPS_ELSEWHERE
    if steps:
        lines += ["", "Next, in another shell:" if stack.has_flows else "Try next, in another shell:", *steps]
    if not settings.tls_cert:
        lines += ["", f"Any gRPC client will do: grpcurl -plaintext {address} list"]
    return "\n".join(lines)
