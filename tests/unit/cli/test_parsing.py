"""Times, JSON and lists of items, as people write them."""

import io
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from tests.unit.cli.shell import COMMAND, Shell
from tests.unit.client.fake_stack import FakeStack
from tests.zones import machine_in
from tradewind.cli.app import app
from tradewind.cli.batch_items import read_items
from tradewind.cli.parsing import parse_duration, parse_object, parse_time, parse_values
from tradewind.cli.screen import iso


@pytest.fixture
def in_honolulu() -> Iterator[None]:
    with machine_in("Pacific/Honolulu"):
        yield


@pytest.mark.usefixtures("in_honolulu")
@pytest.mark.parametrize("text", ["2026-11-01T09:00", "2026-11-01T14:00+05:00", "2026-11-01T09:00:00.000Z"])
def test_times_are_in_utc_as_typed_and_as_printed(text: str) -> None:
    assert iso(parse_time(text)) == "2026-11-01T09:00:00.000Z"


def test_every_option_that_takes_a_time_reads_it_alike() -> None:
    """TIME is a moment, in UTC unless it has an offset; a length of time is a DURATION."""
    options = [option for command in _commands(get_command(app)) for option in command.params]
    readers: dict[str | None, set[Any]] = {}
    for option in options:
        readers.setdefault(option.metavar, set()).add(option.type_descriptor.parameter_info.parser)

    assert readers.pop("TIME") == {parse_time}
    assert readers.pop("DURATION") == {parse_duration}
    assert not set().union(*readers.values()) & {parse_time, parse_duration}


def _commands(command: Any) -> Iterator[Any]:
    yield command
    for each in getattr(command, "commands", {}).values():
        yield from _commands(each)


@pytest.mark.usefixtures("in_honolulu")
def test_trigger_is_saved_for_times_in_utc(shell: Shell, stack: FakeStack) -> None:
    bounds = ("--start", "2026-11-01", "--end", "2026-11-03T00:00+01:00")
    shell("trigger", "save", "a", "-q", "q", "--at", "2026-11-01T09:00", "--at", "2026-11-02T09:00+01:00", *bounds)

    schedule = stack.trigger.saved[-1].schedule
    times = [each.ToJsonString() for each in (*schedule.times.at, schedule.start, schedule.end)]
    assert times == ["2026-11-01T09:00:00Z", "2026-11-02T08:00:00Z", "2026-11-01T00:00:00Z", "2026-11-02T23:00:00Z"]


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


@pytest.mark.parametrize(
    ("option", "value", "kind"),
    [
        ("--time-zone", "Europe/Berlin", "--cron"),
        ("--filter", '{"price": 1}', "--event"),
        ("--status", "failed", "--on-finished"),
    ],
)
def test_trigger_option_without_its_schedule_is_refused(option: str, value: str, kind: str, shell: Shell) -> None:
    save = ("trigger", "save", "a", "-q", "q", "--at", "2026-11-01T09:00")
    assert f"Invalid value for {option}: it needs {kind}" in " ".join(shell(*save, option, value, ends=2).err.split())


@pytest.mark.parametrize("id", ["prices:7:0:gate", "batch:8be0f2:3"])
def test_logs_of_other_node_tasks_are_refused(id: str, shell: Shell) -> None:
    refusal = " ".join(shell("task", "logs", id, ends=2).err.split())
    assert "give task:ID or the id of a batch; for a node of a flow, use tradewind flow logs" in refusal


def test_expected_version_of_memory_needs_change(shell: Shell) -> None:
    assert (
        "Invalid value for --expect: it needs --set or --delete"
        in shell("flow", "memory", "a", "--expect", "1", ends=2).err
    )


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
        ("flow", "delete", "a", "--timeout", text),
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


def test_keys_that_occur_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match='"a" occurs twice in one object'):
        parse_object('{"b": [{"a": 1, "a": 2}]}', "--inputs-json")
    with pytest.raises(typer.BadParameter, match='limits: "a" occurs twice in one object'):
        parse_values(['limits={"a": 1, "a": 2}'], "--input")
    (file := tmp_path / "items.jsonl").write_text('{"a": 1}\n{"a": 1, "a": 2}')
    with pytest.raises(ValueError, match='line 2: invalid JSON: "a" occurs twice in one object'):
        read_items(str(file))


def test_thousands_of_brackets_are_refused() -> None:
    with pytest.raises(typer.BadParameter, match="invalid JSON: it is nested too deeply"):
        parse_object('{"a": ' * 100_000, "--inputs-json")


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


@pytest.mark.parametrize("option", ["read", "watch --after"])
def test_notification_is_named_by_its_id(shell: Shell, option: str) -> None:
    ran = shell("notification", *option.split(), "x", ends=2)

    assert ran.err.endswith(': "x" is not the id of a notification; see: tradewind notification list\n')
