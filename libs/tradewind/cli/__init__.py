"""The `tradewind` command: the stack, workers, flows and cycles from a shell."""

import os
import sys


def main() -> None:
    """Run the `tradewind` command; exit with 0, 1 on failure, 2 for wrong usage or input, 3 for unreachable servers."""
    _replace_closed_streams()
    try:
        # Each command imports what it needs when it runs: `tradewind --help` must not wait for gRPC.
        import tradewind.grpc_engine  # before grpc
        import tradewind.server.first_process  # noqa: F401 - before what takes long to import
        from tradewind.cli.app import app

        app(prog_name="tradewind")
    except KeyboardInterrupt:
        # Interrupted before a command took over; commands exit with this code as well.
        raise SystemExit(130) from None


def _replace_closed_streams() -> None:
    """Open the null device for each closed standard stream, or the next socket gets its number, and our output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115 - to the end


__all__ = ["main"]
