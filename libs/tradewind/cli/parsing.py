"""How arguments and options are read: times, JSON, pairs of names and values."""

import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

import typer

Member = TypeVar("Member", bound=StrEnum)


def parse_duration(text: str | float) -> float:
    """Read a length of time. Raises typer.BadParameter."""
    from tradewind.flow.values import seconds_in

    try:
        return seconds_in(text)
    except ValueError:
        raise typer.BadParameter(f'"{text}" is not a length of time, such as 20, 20s or 5m') from None


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


def parse_time(text: str) -> datetime:
    """Read an ISO 8601 time, in UTC, as times are printed, unless it has an offset. Raises typer.BadParameter."""
    try:
        read = datetime.fromisoformat(text)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f'"{text}" is not a time; give one such as 2026-11-01 or 2026-11-01T09:30:00+01:00'
        ) from None


def parse_values(given: Iterable[str] | None, option: str) -> dict[str, Any]:
    """Read KEY=VALUE options whose values are JSON or plain text. Raises typer.BadParameter."""
    # Here, because the help of a command must not wait for it.
    from tradewind.flow.reading import DuplicateKey, read_json

    values: dict[str, Any] = {}
    for key, text in parse_pairs(given, option).items():
        try:
            values[key] = read_json(text)
        except DuplicateKey as error:
            raise typer.BadParameter(f"{key}: {error}", param_hint=option) from None
        except ValueError:
            values[key] = text
    return values


def parse_object(text: str | None, option: str) -> dict[str, Any]:
    """Read a JSON object as `parse_json` does; return {} for None. Raises ValueError, typer.BadParameter."""
    if text is None:
        return {}
    read = parse_json(text, option)
    if not isinstance(read, dict):
        raise typer.BadParameter("this is not a JSON object", param_hint=option)
    return read


def check_patience(wait: bool, timeout: float | None) -> None:
    """Raise typer.BadParameter for a time to wait without --wait."""
    if timeout is not None and not wait:
        raise typer.BadParameter("it needs --wait", param_hint="--timeout")


def parse_json(text: str | None, option: str) -> Any:
    """Read JSON from `text`, or stdin if it is "-"; return None for None. Raises ValueError, typer.BadParameter."""
    from tradewind.flow.reading import read_json

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


def parse_notification(text: str) -> str:
    """Read the id of a notification, or "". Raises typer.BadParameter."""
    if not re.fullmatch(r"(\d+-\d+)?", text, re.ASCII):
        raise typer.BadParameter(f'"{text}" is not the id of a notification; see: tradewind notification list')
    return text


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
