"""Arguments and options that several commands take."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any, TypeVar

import typer

from tradewind.cli import completion
from tradewind.cli.parsing import parse_duration, parse_time
from tradewind.cli.screen import Format, Screen

Record = TypeVar("Record")

IN_UTC = ", in UTC unless it has an offset"
"""What the help of every option that takes a time says of it."""

FlowName = Annotated[str, typer.Argument(help="Name of the flow.", metavar="NAME", autocompletion=completion.flows)]
Definition = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="JSON or YAML file, - for stdin, or MODULE:NAME of a Flow that is built in Python."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation at a terminal.")]
Output = Annotated[Format, typer.Option("-o", "--format", help="Output format; json for programs.")]
Labels = Annotated[list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label; may be repeated.")]
Limit = Annotated[int, typer.Option("-n", "--limit", min=1, help="Show at most this many.")]
Newest = Annotated[int, typer.Option("-n", "--limit", min=1, help="Show at most this many, newest first.")]
StartedAfter = Annotated[
    datetime | None,
    typer.Option(
        metavar="TIME",
        parser=parse_time,
        help=f"Only cycles that began at or after this time{IN_UTC}.",
    ),
]
StartedBefore = Annotated[
    datetime | None,
    typer.Option(metavar="TIME", parser=parse_time, help=f"Only cycles that began before this time{IN_UTC}."),
]
ReasonOption = Annotated[str, typer.Option(metavar="TEXT", help="Why you do this, kept on record.")]
Etag = Annotated[
    str,
    typer.Option(
        metavar="ETAG",
        help="Refuse unless the flow still has this etag, as `flow plan` and `flow status` show it with -o json.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input", metavar="KEY=VALUE", help="An input for entry nodes, as JSON or plain text; may be repeated."
    ),
]
InputsJson = Annotated[
    str | None, typer.Option("--inputs-json", metavar="JSON", help="All inputs as a JSON object; - reads stdin.")
]

Patience = Annotated[
    float | None,
    typer.Option("--timeout", metavar="DURATION", parser=parse_duration, help="Longest time to wait: 20, 20s, 5m."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for it to end and print its outputs.")]

NodeTypeName = Annotated[
    str,
    typer.Argument(metavar="TYPE", help="A node type that workers offer.", autocompletion=completion.node_types),
]
RequireWorker = Annotated[
    bool, typer.Option("--require-worker", help="Fail if no live worker offers the type, instead of waiting for one.")
]
Attempts = Annotated[int, typer.Option("--attempts", min=1, help="Most attempts in total.")]
Priority = Annotated[
    int, typer.Option("--priority", min=-5, max=5, help="Priority among your own node tasks; the highest is 5.")
]
CacheName = Annotated[
    str | None, typer.Option("--cache", metavar="NAME", help="Reuse the result of the same work from this cache.")
]
RequestId = Annotated[
    str | None,
    typer.Option("--request-id", metavar="ID", help="Repeating a request with the same id returns the first answer."),
]
ConcurrencyText = Annotated[
    str | None,
    typer.Option(
        "--concurrency",
        metavar="KEY:MAX[:WHEN_FULL]",
        help="Run at most MAX at once under this key; WHEN_FULL: wait, drop_new, cancel_oldest, keep_newest.",
    ),
]
RateText = Annotated[
    str | None,
    typer.Option("--rate", metavar="KEY:COUNT/UNIT[:COST]", help="Begin at most COUNT per UNIT under this key."),
]


def only_in_status(things: str, statuses: str) -> Any:
    """Return the option that filters a list of `things`; `statuses` are what it takes, as the help shows them."""
    return one_of(statuses, "--status", help=f"Only {things} in this status; may be repeated.")


def one_of(words: str, *names: str, help: str) -> Any:
    """Return an option that takes one of `words`, as the help shows them and a shell offers them; it checks nothing."""

    def offer(incomplete: str) -> list[str]:
        return [each for each in words.split("|") if each.startswith(incomplete)]

    return typer.Option(*names, metavar=words, help=help, autocompletion=offer)


async def take(screen: Screen, limit: int, records: AsyncIterator[Record]) -> list[Record]:
    """Return the first `limit` records; if there are more, note that."""
    found: list[Record] = []
    async for record in records:
        if len(found) == limit:
            screen.notes(["there are more; --limit shows them"])
            break
        found.append(record)
    return found
