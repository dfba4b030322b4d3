"""The root of the command line: the options that apply to every command, and the commands."""

import os
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tradewind.cli import (
    access,
    backfill,
    backup,
    batch,
    cache,
    completion,
    config,
    cycle,
    dead_letter,
    doctor,
    event,
    explain,
    flow,
    init,
    job,
    measure,
    memory,
    notification,
    queue,
    revision,
    schedule,
    task,
    trigger,
    up,
    worker,
)
from tradewind.cli.examples import add_examples
from tradewind.cli.failures import exit_on_errors
from tradewind.cli.session import Session

_FEW = 2
"""In how many groups a command may be for them to be named where another group does not have it."""


class _Root(TyperGroup):
    """Prints errors of every kind, and completes what typer says of wrong usage: options' places, which commands."""

    def main(self, *args: Any, **extra: Any) -> Any:
        completion.join_words(os.environ)
        return super().main(*args, **extra)

    def make_context(self, *args: Any, **extra: Any) -> Any:
        # The help and the version of the root are printed here.
        with exit_on_errors():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        try:
            with exit_on_errors():
                return super().invoke(ctx)
        except Exception as error:
            refusal: Any = error
            name = getattr(refusal, "option_name", None)
            if any(name in option.opts for option in self.params):
                refusal.message = f"{name} goes before the command: tradewind {name} ... {ctx.invoked_subcommand} ..."
                refusal.possibilities = None
            message = getattr(refusal, "message", None)
            if isinstance(message, str):
                refusal.message = _completed(message, refusal)
            raise


def _completed(message: str, refusal: Any) -> str:
    if message.startswith("No such command"):
        name = message.split("'")[1]
        elsewhere = _commands_named(name, refusal.ctx)
        # In a group, what many others have (`list`, `show`) says nothing: the commands of this one do.
        if elsewhere and (len(elsewhere) <= _FEW or refusal.ctx.parent is None):
            # Rather than one that is only spelled nearly like it, as login is for logs.
            return f"No such command '{name}'. Did you mean {', '.join(elsewhere)}?"
        if message.endswith("."):
            return f"{message} There are {', '.join(refusal.ctx.command.commands)}."
    said = message.removeprefix("Value error, ").replace("Input should be", "it must be")
    return said.partition(", unable to parse")[0]


def _commands_named(name: str, context: Any) -> list[str]:
    """Return the commands of this name in all groups, quoted and with their group."""
    groups = context.find_root().command.commands
    return [f"'{group} {name}'" for group, command in groups.items() if name in getattr(command, "commands", ())]


# Plain help instead of rich panels: those take longer to import than most commands take to run.
app = typer.Typer(
    cls=_Root,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run flows, graphs of typed nodes that repeat on a schedule, on remote workers.",
    epilog="Times are in UTC, typed ones unless they have an offset. "
    "Exit codes: 0 success, 1 what was asked failed, 2 wrong usage, input or name, 3 a server is not reached.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tradewind {version('tradewind')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    address: Annotated[
        str | None,
        typer.Option(help="Address of the stack (TRADEWIND_ADDRESS, else localhost:7700).", metavar="HOST:PORT"),
    ] = None,
    tls_ca: Annotated[
        str | None,
        typer.Option(
            help='PEM file of the CA of the servers, or "system" for the CAs of the system (TRADEWIND_TLS_CA).',
            metavar="FILE",
        ),
    ] = None,
    tls_cert: Annotated[
        str | None, typer.Option(help="PEM file of the client certificate (TRADEWIND_TLS_CERT).", metavar="FILE")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(help="PEM file of the client certificate's key (TRADEWIND_TLS_KEY).", metavar="FILE")
    ] = None,
    tls_server_name: Annotated[
        str | None,
        typer.Option(help="Name to expect in the servers' certificates (TRADEWIND_TLS_SERVER_NAME).", metavar="NAME"),
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option(help="Codec that encodes and decodes payloads (TRADEWIND_CODEC).", metavar="MODULE:ATTRIBUTE"),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that apply to every command."""
    context.obj = Session.of(context.params)


app.command("init")(init.init)
app.command("up")(up.up)
app.command("login")(access.login)
app.command("logout")(access.logout)
app.command("whoami")(access.whoami)
app.add_typer(access.tokens, name="token")
app.add_typer(access.users, name="user")
app.add_typer(worker.app, name="worker")
flow.app.add_typer(schedule.app)
flow.app.add_typer(backfill.app)
flow.app.add_typer(revision.app)
flow.app.add_typer(memory.app)
app.add_typer(flow.app, name="flow")
app.add_typer(cycle.app, name="cycle")
app.add_typer(job.app, name="job")
app.add_typer(task.app, name="task")
app.add_typer(dead_letter.app, name="dead-letter")
app.add_typer(batch.app, name="batch")
app.add_typer(notification.app, name="notification")
app.add_typer(trigger.app, name="trigger")
app.add_typer(event.app, name="event")
app.add_typer(config.app, name="config")
app.add_typer(cache.app, name="cache")
app.add_typer(backup.app, name="backup")
app.command("queue")(queue.queue)
app.command("explain")(explain.explain)
app.command("doctor")(doctor.doctor)
app.command("bench")(measure.bench)
add_examples(app)
