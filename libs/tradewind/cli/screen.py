"""Where a command prints: tables and colours for a person at a terminal, plain lines in a pipe, JSON for programs."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from io import TextIOWrapper
from typing import TYPE_CHECKING, TypeVar

import typer

from tradewind.server.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

Value = TypeVar("Value")

_NAMES = 5
_GAP = 2
"""Spaces between the columns of a table."""
_FOLDED = 12
"""The width below which the last column of a table is not folded any further."""
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
"""How many seconds the units have in which people type lengths of time, the longest first."""

STYLES = {
    "running": "cyan",
    "queued": "yellow",
    "pending": "yellow",
    "suspended": "yellow",
    "registered": "dim",
    "completed": "green",
    "active": "green",
    "partial": "yellow",
    "draining": "yellow",
    "failed": "red",
    "timeout": "red",
    "terminated": "magenta",
    "cancelled": "magenta",
    "stopped": "magenta",
    "offline": "dim",
    "skipped": "dim",
}
"""The colour of each status word."""


class Format(StrEnum):
    """How a command prints what it found."""

    TEXT = "text"
    JSON = "json"


class Screen:
    """Prints to stdout, and notes to stderr."""

    def __init__(self) -> None:
        if isinstance(sys.stdout, TextIOWrapper):
            # Characters that the terminal's encoding lacks must not keep the rest from being printed.
            sys.stdout.reconfigure(errors="backslashreplace")
        self.terminal = sys.stdout.isatty()
        self._console: Console | None = None

    @property
    def is_interactive(self) -> bool:
        """Whether a person is there to answer a question."""
        return self.terminal and sys.stdin.isatty()

    @property
    def shows_bars(self) -> bool:
        """Whether it is a terminal that can draw over what it shows."""
        return self.terminal and not self.console.is_dumb_terminal

    @property
    def unicode(self) -> bool:
        """Whether it can print more than ASCII."""
        return (sys.stdout.encoding or "").lower().startswith("utf")

    @property
    def console(self) -> "Console":
        """Rich's console; only worth its import at a terminal."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(highlight=False)
        return self._console

    def line(self, text: str = "", style: str | None = None) -> None:
        """Print a line, or several; a terminal shows it in `style`."""
        text = visible(text)
        if self.terminal and style:
            from rich.text import Text

            # A Text of its own: a style passed to print would also colour the live bars below.
            self.console.print(Text(text, style=style), soft_wrap=True)
        else:
            typer.echo(text)

    def notes(self, warnings: Iterable[str]) -> None:
        """Print warnings, which do not stop the command."""
        for warning in warnings:
            # Not by typer.echo, which would write into a live bar instead of above it.
            print(in_colour(visible(f"note: {warning}"), typer.colors.YELLOW), file=sys.stderr)

    def json(self, value: object) -> None:
        """Print a value as indented JSON."""
        from tradewind.cli.plain import to_json

        typer.echo(to_json(value, indent=2))

    def result(self, output: Format, value: object, text: str, style: str | None = None) -> None:
        """Print a value as JSON, or the line that says the same to a person."""
        if output is Format.JSON:
            self.json(value)
        else:
            self.line(text, style)

    def results(self, output: Format, values: object, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print values as JSON, or for a person as rows under their columns."""
        if output is Format.JSON:
            self.json(values)
        else:
            self.table(columns, rows)

    def show(self, output: Format, value: Value, describe: "Callable[[Screen, Value], None]") -> None:
        """Print a value as JSON, or in words for a person."""
        if output is Format.JSON:
            self.json(value)
        else:
            describe(self, value)

    def show_next(self, output: Format, value: Value, describe: "Callable[[Screen, Value], None]") -> None:
        """Print one of the values that come one after another, as a line of JSON, or in words for a person."""
        if output is Format.JSON:
            self.json_line(value)
        else:
            describe(self, value)

    def json_line(self, value: object) -> None:
        """Print a value as one line of JSON, at once."""
        from tradewind.cli.plain import to_json

        typer.echo(to_json(value))

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Print names and values, one pair per line, without empty values."""
        shown = [(name, value) for name, value in facts if value]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            # Further lines are aligned with the first, so that they do not look like facts.
            text = value.replace("\n", "\n".ljust(width + 3))
            self.line(f"{name.ljust(width)}  {text}", STYLES.get(value))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under their columns; an empty cell becomes "-"."""
        filled = [[visible(cell) or "-" for cell in row] for row in rows]
        if self.terminal:
            self._rich_table(columns, filled)
            return
        # Each row is a line: a newline would let a cell look like further rows.
        filled = [[cell.replace("\n", r"\n") for cell in row] for row in filled]
        widths = [max(len(cell) for cell in column) for column in zip(columns, *filled, strict=True)]
        for row in [columns, *filled]:
            typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def _rich_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table of which only the last column is folded; if there is no room for it, the terminal wraps lines.

        What is before that are names and numbers, which somebody copies or compares.
        """
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        widths = [
            max(cell_len(line) for cell in column for line in cell.split("\n"))
            for column in zip(columns, *rows, strict=True)
        ]
        least = sum(widths[:-1]) + _GAP * len(widths[1:]) + min(widths[-1], _FOLDED)
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
        table.width = least if least > self.console.width else None
        for column in columns[:-1]:
            table.add_column(column, no_wrap=True)
        table.add_column(columns[-1], overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
        self.console.print(table, crop=False)

    def when(self, moment: datetime | None) -> str:
        """Return a time: relative to now at a terminal, ISO 8601 in a pipe, "" for None."""
        if moment is None:
            return ""
        if not self.terminal:
            return iso(moment)
        seconds = (moment - datetime.now(UTC)).total_seconds()
        return f"in {length(seconds)}" if seconds > 0 else f"{length(-seconds)} ago"


def in_colour(text: str, colour: str) -> str:
    """Return a text for stderr in this colour, or plain where colours are not shown, or not wanted (no-color.org)."""
    plain = not sys.stderr.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else typer.style(text, fg=colour)


def planned(moment: datetime | None) -> str:
    """Return a time that tells one cycle or firing from another: ISO 8601 also at a terminal, "" for None."""
    return iso(moment) if moment is not None else ""


def counted(count: int, noun: str) -> str:
    """Return `1 node`, `2 nodes`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def some(names: Sequence[str]) -> str:
    """Return a cell with the first five names, and how many more there are."""
    more = len(names) - _NAMES
    return ",".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")


def iso(moment: datetime) -> str:
    """Return a time as `2026-11-21T07:25:10.123Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def typed_length(seconds: float) -> str:
    """Return a length of time as people type it: `90s`, `1h`, `500ms`."""
    for unit, size in _UNITS.items():
        count, rest = divmod(seconds, size)
        if not rest:
            return f"{count:.0f}{unit}"
    return f"{seconds * 1000:.0f}ms"


def length(seconds: float | None) -> str:
    """Return a length of time in the unit that suits it, "" for None."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    for unit, size in (("min", 60), ("h", 3600)):
        if seconds < size * 60:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"
