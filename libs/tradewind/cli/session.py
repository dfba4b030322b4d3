"""One invocation of the command: which servers it calls, where it prints, and how errors end it."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self

import typer

from tradewind.cli.screen import Screen

if TYPE_CHECKING:
    from tradewind.client import Addresses, Client
    from tradewind.codec import Codec
    from tradewind.tls import TlsFiles

Parameters = ParamSpec("Parameters")


class Session:
    """What a command works with."""

    patience = 60.0
    """Seconds that a long-running command, such as a watch, waits for a server to come back once it has answered."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the session of the options that apply to every command, by name."""
        tls = None
        # Without any, clients and workers read the environment themselves, and plain text must not pay for the import.
        files = [options[f"tls_{part}"] for part in ("ca", "cert", "key", "server_name")]
        if any(files):
            from tradewind.tls import TlsFiles

            tls = TlsFiles.find(*files)
        return cls(options["address"], tls=tls, codec=options["codec"])

    def __init__(self, address: str | None = None, tls: "TlsFiles | None" = None, codec: str | None = None) -> None:
        """Use these certificates and the codec of this name; None leaves either to the environment."""
        self.address = address
        self.screen = Screen()
        self.tls = tls
        self.codec_name = codec

    @property
    def addresses(self) -> "Addresses":
        """Where each server is."""
        from tradewind.client import Addresses

        return Addresses.find(self.address)

    @property
    def codec(self) -> "Codec | None":
        """The codec for payloads; None leaves it to the environment."""
        if self.codec_name is None:
            return None
        from tradewind.codec import load_codec

        return load_codec(self.codec_name)

    @property
    def token(self) -> str | None:
        """The caller's token: TRADEWIND_TOKEN, or else the one that `tradewind login` kept for the address."""
        from tradewind.cli.stored_tokens import stored_token
        from tradewind.grpc_engine.bearer import token_of

        return token_of(None) or stored_token(self.addresses.access)

    def client(self, token: str | None = None, *, patience: float = 0, run_stream: bool = True) -> "Client":
        """Return a client with `token`, or else the session's, that by default fails at once when nobody answers.

        A person can then find out why. `patience`, in seconds, and `run_stream` are those of Client.
        """
        from tradewind.client import Client

        return Client(
            addresses=self.addresses,
            patience=patience,
            credentials=self.tls,
            codec=self.codec,
            token=token or self.token,
            run_stream=run_stream,
        )


def asynchronous(command: Callable[Concatenate[Session, Parameters], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a command from a coroutine function that takes the session; the root prints its errors."""

    @functools.wraps(command)
    def run(session: Session, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(command(session, *args, **kwargs))

    return blocking(run)


def blocking(command: Callable[Concatenate[Session, Parameters], None]) -> Callable[..., None]:
    """Do as `asynchronous` does, for a plain function."""

    def run(context: typer.Context, *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        command(context.obj, *args, **kwargs)

    # Typer reads the signature, so it must have Typer's context instead of the session.
    signature = inspect.signature(command)
    first, *rest = signature.parameters.values()
    parameters = [first.replace(name="context", annotation=typer.Context), *rest]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run
