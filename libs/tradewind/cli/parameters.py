"""Arguments and options that several commands take, and how they are read."""

import json
import sys
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from tradewind.cli.screen import Format

Record = TypeVar("Record")
Member = TypeVar("Member", bound=StrEnum)

FlowName = Annotated[str, typer.Argument(help="Name of the flow.", metavar="NAME")]
Definition = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="JSON or YAML file, - for stdin, or MODULE:NAME of a Flow that is built in Python."
    ),
]
Output = Annotated[Format, typer.Option("-o", "--format", help="Output format; json for programs.")]
Labels = Annotated[list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label; may be repeated.")]
Newest = Annotated[int, typer.Option(min=1, help="Show at most this many, newest first.")]
ReasonOption = Annotated[str, typer.Option(help="Reason, kept on record.")]
Etag = Annotated[
    str,
    typer.Option(
        help="Refuse unless the flow still has this etag, as `flow plan` and `flow status` show it with -o json."
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


def parse_duration(text: str | float) -> float:
    """Read a length of time. Raises typer.BadParameter."""
    from tradewind.flow.values import seconds_in

    try:
        return seconds_in(text)
    except ValueError:
        raise typer.BadParameter(f'"{text}" is not a length of time, such as 20, 20s or 5m') from None


Patience = Annotated[
    float | None,
    typer.Option("--timeout", metavar="TIME", parser=parse_duration, help="Longest time to wait: 20, 20s, 5m."),
]
Wait = Annotated[
    float,
    typer.Option(
        "--wait",
        metavar="TIME",
        parser=parse_duration,
        help="Longest time to wait for the deletion to finish: 20, 20s, 5m.",
    ),
]

NodeTypeName = Annotated[str, typer.Argument(metavar="TYPE", help="A node type that workers offer.")]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="KEY=VALUE", help="A parameter, as JSON or plain text; may be repeated."),
]
ParamsJson = Annotated[
    str | None, typer.Option("--params-json", metavar="JSON", help="All parameters as a JSON object; - reads stdin.")
]
RequireWorker = Annotated[
    bool, typer.Option("--require-worker", help="Fail if no live worker offers the type, instead of waiting for one.")
]
Attempts = Annotated[int, typer.Option("--attempts", min=1, help="Most attempts in total.")]
Priority = Annotated[
    int, typer.Option("--priority", min=-5, max=5, help="Priority among your own node tasks; the highest is 5.")
]
CacheName = Annotated[
    str | None,
    typer.Option("--cache", metavar="NAME", help="Reuse the result of the same work from this cache."),
]
RequestId = Annotated[
    str | None,
    typer.Option("--request-id", metavar="ID", help="Repeating a request with the same id returns the first answer."),
]
ConcurrencyText = Annotated[
    str | None,
    typer.Option("--concurrency", metavar="KEY:MAX[:WHEN_FULL]", help="Run at most MAX at once under this key."),
]
RateText = Annotated[
    str | None,
    typer.Option("--rate", metavar="KEY:COUNT/UNIT[:COST]", help="Begin at most COUNT per UNIT under this key."),
]


def parse_concurrency(text: str | None) -> dict[str, Any] | None:
    """Read `KEY:MAX[:WHEN_FULL]`. Raises typer.BadParameter."""
    if text is None:
        return None
    key, *rest = text.split(":")
    if len(rest) not in (1, 2) or not rest[0].removeprefix("-").isdecimal():
        raise typer.BadParameter(f'"{text}" is not KEY:MAX[:WHEN_FULL]', param_hint="--concurrency")
    return {"key": key, "max": int(rest[0]), **({"when_full": rest[1]} if len(rest) > 1 else {})}


def parse_rate(text: str | None) -> dict[str, Any] | None:
    """Read `KEY:COUNT/UNIT[:COST]`. Raises typer.BadParameter."""
    if text is None:
        return None
    key, *rest = text.split(":")
    if len(rest) not in (1, 2) or not all(cost.removeprefix("-").isdecimal() for cost in rest[1:]):
        raise typer.BadParameter(f'"{text}" is not KEY:COUNT/UNIT[:COST]', param_hint="--rate")
    return {"key": key, "limit": rest[0], **({"cost": int(rest[1])} if len(rest) > 1 else {})}


def parse_pairs(given: Iterable[str] | None, option: str) -> dict[str, str]:
    """Read KEY=VALUE options. Raises typer.BadParameter."""
    found: dict[str, str] = {}
    for each in given or ():
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f'"{each}" is not KEY=VALUE', param_hint=option)
        if key in found:
            raise typer.BadParameter(f'"{key}" is given twice', param_hint=option)
        found[key] = value
    return found


def parse_time(text: str, option: str, zone: tzinfo | None = UTC) -> datetime:
    """Read an ISO 8601 time, in `zone` (None: local time) unless it names one. Raises typer.BadParameter."""
    try:
        read = datetime.fromisoformat(text)
        return (read if read.tzinfo or zone is None else read.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f'"{text}" is not a time; give one such as 2026-11-01 or 2026-11-01T09:30:00+01:00', param_hint=option
        ) from None


def parse_inputs(
    given: Iterable[str] | None, text: str | None, option: str = "--input", text_option: str = "--inputs-json"
) -> dict[str, Any]:
    """Read the inputs of a cycle; KEY=VALUE options win over the JSON object. Raises typer.BadParameter."""
    inputs: dict[str, Any] = {}
    if text is not None:
        read = parse_json_option(text, text_option)
        if not isinstance(read, dict):
            raise typer.BadParameter("this is not a JSON object", param_hint=text_option)
        inputs.update(read)
    for key, value in parse_pairs(given, option).items():
        try:
            inputs[key] = read_json(value)
        except ValueError:
            inputs[key] = value
    return inputs


def read_json(text: str) -> Any:
    """Read JSON by the standard, which has no NaN and no Infinity. Raises ValueError."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def check_patience(wait: bool, timeout: float | None) -> None:
    """Raise typer.BadParameter for a time to wait without --wait."""
    if timeout is not None and not wait:
        raise typer.BadParameter("it needs --wait", param_hint="--timeout")


def parse_json_option(text: str | None, option: str) -> Any:
    """Read JSON from `text`, or stdin if it is "-"; return None for None. Raises ValueError, typer.BadParameter."""
    if text is None:
        return None
    given = read_stdin() if text == "-" else text
    try:
        return read_json(given)
    except ValueError as error:
        raise typer.BadParameter(f"invalid JSON: {error}", param_hint=option) from None


def read_stdin() -> str:
    """Return all of stdin, in UTF-8 as files are, whatever the locale says. Raises ValueError."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"<stdin> is not UTF-8 text: the byte at offset {error.start} is invalid") from None


def parse_choice(word: str, kind: type[Member], option: str) -> Member:
    """Return the member of `kind` that a word names. Raises typer.BadParameter when there is none, or for "unknown"."""
    known = [each for each in kind if each.value != "unknown"]
    if word not in known:
        raise typer.BadParameter(
            f'unknown {option.removeprefix("--")} "{word}": use one of {", ".join(known)}', param_hint=option
        )
    return kind(word)


def parse_statuses(given: Iterable[str] | None, kind: type[Member]) -> list[Member]:
    """Return the statuses given. Raises typer.BadParameter as `parse_choice` does."""
    return [parse_choice(each, kind, "--status") for each in given or ()]


async def take(limit: int, records: AsyncIterator[Record]) -> list[Record]:
    """Return the first `limit` records."""
    found: list[Record] = []
    async for record in records:
        found.append(record)
        if len(found) == limit:
            break
    return found
