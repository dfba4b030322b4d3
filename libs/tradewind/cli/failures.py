"""How a command ends when something went wrong: a clear line on stderr, and an exit code that scripts can test."""

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from tradewind.cli.screen import in_colour
from tradewind.server.visible import visible

FAILED = 1
"""The request did not succeed, or a cycle failed."""
WRONG_INPUT = 2
"""Wrong usage, invalid input, or an unknown name."""
UNREACHABLE = 3
"""A server cannot be reached."""
INTERRUPTED = 130
TERMINATED = 143

_TOO_MANY_FILES = errno.EMFILE, errno.ENFILE
_FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG
_UNDECODED = re.compile("[\udc80-\udcff]")
"""What Python makes of a byte of an argument that is no text in the encoding of the locale."""
_ENCODING = (
    "an argument is not in the encoding of the locale: give it in UTF-8, and set a locale such as LC_ALL=C.UTF-8"
)
_LISTS = {
    "BACKFILL_NOT_FOUND": "flow backfills {0}",
    "BATCH_NOT_FOUND": "batch list",
    "FLOW_NOT_FOUND": "flow list",
    "JOB_NOT_FOUND": "job list",
    "NODE_TASK_NOT_FOUND": "cycle show {0} {1}",
    "SESSION_NOT_FOUND": "token list",
    "TRIGGER_NOT_FOUND": "trigger list -q QUEUE",
    "USER_NOT_FOUND": "user list",
    "WORKER_NOT_FOUND": "worker list",
}
"""Which command lists what a name of this kind can be; {0} and {1} are the name's first parts."""
_LISTS_OF_TASKS = {"task": "task list", "batch": "batch list"}
"""The same for a node task of no flow, by the first part of its name."""
_LOG_IN = "log in with a token: tradewind login; an admin can create one: tradewind token create"


def fail(message: str, code: int = FAILED) -> typer.Exit:
    """Print an error for a person; raise what this returns."""
    first, *rest = visible(message).splitlines() or [""]
    typer.echo(in_colour(f"error: {first}", typer.colors.RED), err=True)
    for line in rest:
        typer.echo(line, err=True)
    return typer.Exit(code)


@contextmanager
def exit_on_errors() -> Iterator[None]:
    """Print errors of the client, of files and of arguments, and exit with their code."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of the pipe has had enough, as with `head`.
        sys.stdout = None
        raise typer.Exit(0) from None
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            if error.filename is None:
                # What stdout still holds would not fit either.
                sys.stdout = None
            raise fail(f"{error.filename or 'cannot write'}: {error.strerror}") from None
        if isinstance(error, OSError) and error.errno in _TOO_MANY_FILES:
            from tradewind.server.open_files import TOO_MANY_OPEN_FILES

            raise fail(TOO_MANY_OPEN_FILES) from None
        raise fail(text_of(error), WRONG_INPUT) from None
    except Exception as error:
        failure = _client_failure(error)
        if failure is None:
            raise
        raise failure from None


def _client_failure(error: Exception) -> typer.Exit | None:
    # If one of its errors was raised it is imported already; if not, importing it would be slow.
    client = sys.modules.get("tradewind.client")
    if client is None:
        return None
    if isinstance(error, client.Unreachable):
        if "TLS" in error.detail:
            return fail(error.message, UNREACHABLE)
        detail = "" if "refused" in error.detail else f" ({error.detail})"
        return fail(f'cannot reach {error.address}{detail}: is "tradewind up" running?', UNREACHABLE)
    if isinstance(error, client.Unavailable):
        return fail(error.message, UNREACHABLE)
    if isinstance(error, client.Unauthenticated) and error.reason in ("TOKEN_MISSING", "TOKEN_EXPIRED"):
        return fail(f"{error.message}\n{_LOG_IN}")
    if isinstance(error, client.NotFound):
        return fail(error.message + _where_to_look(error.reason, error.message), WRONG_INPUT)
    if isinstance(error, client.InvalidInput):
        return fail(error.message, WRONG_INPUT)
    if isinstance(error, client.TradewindError):
        return fail(error.message)
    return None


def _where_to_look(reason: str, message: str) -> str:
    """Return which command lists the names there are, unless the server has said what may be meant."""
    # As in: no node task "momentum:0:0:model"
    named = re.search('"([^"]+)"', message)
    if reason not in _LISTS or ";" in message or named is None:
        return ""
    parts = named[1].split(":")
    command = _LISTS_OF_TASKS.get(parts[0]) if reason == "NODE_TASK_NOT_FOUND" else None
    try:
        return f"; see: tradewind {command or _LISTS[reason].format(*parts)}"
    except IndexError:
        return ""


def text_of(error: Exception) -> str:
    """Return what to tell a person about an error of the system or of a value."""
    if isinstance(error, OSError) and error.filename is not None:
        # The second name of a copy is where it goes: that disk is full.
        name = error.filename2 if error.errno in _FULL and error.filename2 else error.filename
        return f"{name}: {error.strerror}"
    if isinstance(error, ValueError) and _UNDECODED.search("".join(sys.argv)):
        return f"{error}\n{_ENCODING}"
    return str(error)
