"""One invocation of the command: where it speaks to, where it prints to, and how its errors end it."""

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import typer

from tradewind.cli.failures import told
from tradewind.cli.screen import Screen

if TYPE_CHECKING:
    from tradewind.client import Addresses, Client
    from tradewind.codec import Codec
    from tradewind.tls import TlsFiles

Parameters = ParamSpec("Parameters")


class Session:
    """What a command works with."""

    patience = 60.0
    """Seconds for which a command that goes on, such as a watch, waits for a server that was there to come back."""

    def __init__(self, address: str | None = None, tls: "TlsFiles | None" = None, codec: str | None = None) -> None:
        """Take which certificates hold, None for plain text, and the name of a codec."""
        self.address = address
        self.screen = Screen()
        self.tls = tls
        self._codec = codec

    @property
    def addresses(self) -> "Addresses":
        """Where each server is."""
        from tradewind.client import Addresses

        return Addresses.find(self.address)

    @property
    def codec(self) -> "Codec | None":
        """What encodes and decodes payloads, None for what the environment says."""
        if self._codec is None:
            return None
        from tradewind.codec import load_codec

        return load_codec(self._codec)

    @property
    def token(self) -> str | None:
        """What says who calls: TRADEWIND_TOKEN, or else what `tradewind login` has kept for the address."""
        from tradewind.cli.kept_tokens import kept_token

        return os.environ.get("TRADEWIND_TOKEN") or kept_token(self.addresses.access)

    def client(self) -> "Client":
        """Return a client that says at once when nobody answers; a person may look why."""
        from tradewind.client import Client

        return Client(addresses=self.addresses, patience=0, credentials=self.tls, codec=self.codec, token=self.token)


def asynchronous(
    command: Callable[Concatenate[Session, Parameters], Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """Make a command of a coroutine function that takes the session; its errors are told and set the exit code."""

    @functools.wraps(command)
    def run(session: Session, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(command(session, *args, **kwargs))

    return blocking(run)


def blocking(
    command: Callable[Concatenate[Session, Parameters], None],
) -> Callable[..., None]:
    """As asynchronous, for a plain function."""

    def run(context: typer.Context, *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        session: Session = context.obj
        with told():
            command(session, *args, **kwargs)

    # Typer reads the signature; in it, Typer's context stands in the place of the session.
    signature = inspect.signature(command)
    first, *rest = signature.parameters.values()
    parameters = [first.replace(name="context", annotation=typer.Context), *rest]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run
