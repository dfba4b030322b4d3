"""The `tradewind` command: the stack, workers, flows and cycles from a shell."""


def main() -> None:
    """Be the `tradewind` command; exits with 0, or 1 failed, 2 wrong usage or input, 3 servers out of reach."""
    try:
        # What a command needs is imported when it runs: `tradewind --help` must not wait for gRPC.
        import tradewind.grpc_engine  # noqa: F401 - before grpc
        from tradewind.cli.app import app

        app(prog_name="tradewind")
    except KeyboardInterrupt:
        # Before there was a command, which would have ended so as well.
        raise SystemExit(130) from None


__all__ = ["main"]
