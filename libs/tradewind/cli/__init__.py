"""The `tradewind` command: the stack, workers, flows and cycles from a shell."""

import os
import sys


def main() -> None:
    """Be the `tradewind` command; exits with 0, or 1 failed, 2 wrong usage or input, 3 servers out of reach."""
    _stand_in_for_closed_streams()
    try:
        # What a command needs is imported when it runs: `tradewind --help` must not wait for gRPC.
        import tradewind.grpc_engine  # noqa: F401 - before grpc
        from tradewind.cli.app import app

        app(prog_name="tradewind")
    except KeyboardInterrupt:
        # Before there was a command, which would have ended so as well.
        raise SystemExit(130) from None


def _stand_in_for_closed_streams() -> None:
    """Open the null device for each closed standard stream: else the next socket gets its number, and our output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115 - to the end


__all__ = ["main"]
