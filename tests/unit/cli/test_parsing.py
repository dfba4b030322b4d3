"""Times, JSON and lists of items, as people write them."""

import io
import os
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from tests.unit.cli.shell import COMMAND, Shell
from tradewind.cli.batch_items import read_items
from tradewind.cli.parsing import parse_duration, parse_object, parse_time, parse_values


@pytest.fixture
def in_honolulu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Pacific/Honolulu")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_honolulu")
def test_time_zone_comes_from_text_then_default_then_machine() -> None:
    nine = datetime(2026, 11, 1, 9, tzinfo=UTC)
    assert parse_time("2026-11-01T09:00", "--from") == nine
    assert parse_time("2026-11-01T14:00+05:00", "--from") == nine
    assert parse_time("2026-11-01T09:00:00.000Z", "--at", zone=None) == nine
    assert parse_time("2026-10-31T23:00", "--at", zone=None) == nine


@pytest.mark.parametrize("text", ["soon", "9999-12-31T23:59:59-10:00", "0001-01-01T00:00:00+10:00"])
def test_invalid_time_is_refused(text: str, shell: Shell) -> None:
    assert f'"{text}" is not a time' in shell("job", "stop", "*", "--started-after", text, ends=2).err
    assert f'"{text}" is not a time' in shell("trigger", "save", "a", "-q", "q", "--at", text, ends=2).err
    assert f'"{text}" is not a time' in shell("flow", "backfill", "a", "--from", text, "--to", text, ends=2).err


def test_trigger_needs_exactly_one_schedule(shell: Shell) -> None:
    save = ("trigger", "save", "a", "-q", "q")
    message = "exactly one of --at, --after, --every, --cron, --event and --on-finished"
    assert message in " ".join(shell(*save, ends=2).err.split())
    assert message in " ".join(shell(*save, "--every", "5", "--event", "e", ends=2).err.split())
    assert "not a JSON object" in shell(*save, "--event", "e", "--filter", "[1]", ends=2).err


@pytest.mark.parametrize("payload", ["5", "[1]", '[["a", "b"]]', '"ab"'])
def test_trigger_payload_must_be_json_object(payload: str, shell: Shell) -> None:
    assert "not a JSON object" in shell("trigger", "fire", "a", "-q", "q", "--payload-json", payload, ends=2).err


@pytest.mark.parametrize("text", ["1e300", "inf", "nan", "-5", "soon", "5 minutes"])
def test_invalid_duration_is_refused(text: str, shell: Shell) -> None:
    save = ("trigger", "save", "a", "-q", "q", "--event", "e")
    message = f'"{text}" is not a length of time, such as 20, 20s or 5m'
    for command in (
        ("trigger", "save", "a", "-q", "q", "--every", text),
        ("trigger", "save", "a", "-q", "q", "--after", text),
        (*save, "--jitter", text),
        ("worker", "run", "nodes", "--grace", text),
        ("flow", "delete", "a", "--wait", text),
    ):
        assert message in " ".join(shell(*command, ends=2).err.split())


def test_excessive_duration_is_refused(shell: Shell) -> None:
    for option in ("--every", "--after"):
        assert "at most 10 000 years" in shell("trigger", "save", "a", "-q", "q", option, "9" * 20, ends=2).err


@pytest.mark.parametrize(("text", "length"), [("5", 5.0), ("5s", 5.0), ("1.5m", 90.0), ("250ms", 0.25), ("2h", 7200.0)])
def test_duration_is_read_from_seconds_or_text(text: str, length: float) -> None:
    assert parse_duration(text) == length


@pytest.mark.parametrize(
    ("option", "text", "form"),
    [
        ("--rate", "k", "KEY:COUNT/UNIT[:COST]"),
        ("--rate", "k:5/s:x", "KEY:COUNT/UNIT[:COST]"),
        ("--rate", "k:5/s:--5", "KEY:COUNT/UNIT[:COST]"),
        ("--rate", "k:5/s:1:2", "KEY:COUNT/UNIT[:COST]"),
        ("--concurrency", "k:--1", "KEY:MAX[:WHEN_FULL]"),
    ],
)
def test_malformed_rate_or_concurrency_is_refused(option: str, text: str, form: str, shell: Shell) -> None:
    assert f'"{text}" is not {form}' in shell("task", "submit", "feed", option, text, ends=2).err


def test_nan_and_infinity_are_not_json_numbers() -> None:
    assert parse_values(["a=NaN", "b=-Infinity", "c=1.5"], "--input") == {"a": "NaN", "b": "-Infinity", "c": 1.5}
    with pytest.raises(typer.BadParameter, match="NaN is not a JSON number"):
        parse_object('{"a": NaN}', "--inputs-json")


def test_items_are_split_only_at_newlines(tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    file.write_bytes('\ufeff{"a": "x\u2028y\u0085z"}\r\n\r\n{"a": 2}\n'.encode())
    assert read_items(str(file)) == ['{"a": "x\u2028y\u0085z"}', '{"a": 2}']

    file.write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(ValueError, match=r"items\.jsonl is not UTF-8 text: the byte at offset 7 is invalid"):
        read_items(str(file))


@pytest.mark.parametrize(
    "command",
    [("batch", "submit", "feed", "-"), ("flow", "analyze", "-"), ("flow", "run", "momentum", "--inputs-json", "-")],
)
def test_stdin_is_read_as_utf_8_whatever_the_locale(command: tuple[str, ...], shell: Shell) -> None:
    """In a process of its own, as the locale decides how Python reads stdin."""
    environment = {**os.environ, "LC_ALL": "C"}

    ended = subprocess.run([*COMMAND, *command], input=b'{"a": "\xff"}', capture_output=True, env=environment)

    assert (ended.returncode, ended.stderr) == (
        2,
        b"error: <stdin> is not UTF-8 text: the byte at offset 7 is invalid\n",
    )


def test_byte_order_mark_is_dropped_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO('\ufeff{"a": 1}\r\n'.encode()), encoding="utf-8"))

    assert read_items("-") == ['{"a": 1}']


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("login --token tw_1 --token-file token", "--token-file: give --token or --token-file, not both"),
        ("cycle show momentum --output feed --items feed", "--items: give --output or --items, not both"),
        ("cycle stop momentum --node feed --component 0", "--component: give --node or --component, not both"),
        ("cycle rerun momentum --timeout 5", "--timeout: it needs --wait"),
        ("flow run momentum --timeout 5", "--timeout: it needs --wait"),
        ("task submit feed --timeout 5", "--timeout: it needs --wait"),
    ],
)
def test_contradictory_options_are_refused(shell: Shell, command: str, message: str) -> None:
    assert message in " ".join(shell(*command.split(), ends=2).err.split())
