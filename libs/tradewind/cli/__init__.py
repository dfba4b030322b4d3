"""The `tradewind` command: the stack, workers, flows and cycles from a shell."""

from tradewind.server.closed_streams import replace_closed_streams


def main() -> None:
    """Run the `tradewind` command; exit with 0, 1 on failure, 2 for wrong usage or input, 3 for unreachable servers."""
    replace_closed_streams()
    try:
        # Each command imports what it needs when it runs: `tradewind --help` must not wait for gRPC.
        import tradewind.grpc_engine  # before grpc
        import tradewind.server.first_process  # noqa: F401 - before what takes long to import
        from tradewind.cli.app import app

        app(prog_name="tradewind")
    except KeyboardInterrupt:
        # Interrupted before a command took over; commands exit with this code as well.
        raise SystemExit(130) from None


__all__ = ["main"]
