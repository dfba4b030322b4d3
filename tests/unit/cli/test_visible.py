"""What users write is shown, and does nothing to the terminal of whoever looks at it."""

import pytest

from tests.unit.cli.shell import Shell
from tests.unit.client.fake_stack import FakeStack
from tradewind.cli.descriptions import show_log_line
from tradewind.cli.failures import fail
from tradewind.cli.screen import Format, Screen
from tradewind.client import LogLevel, LogLine, LogSource

TITLE, ERASE, TURNED = "\x1b]0;root\x07", "\x9b2J\r", "\u202etxt"
HOSTILE = f"{TITLE}{ERASE}{TURNED}"
SHOWN = r"\x1b]0;root\x07\x9b2J\r\u202etxt"


def test_reason_cannot_act_on_the_terminal_that_shows_it(shell: Shell, stack: FakeStack) -> None:
    """Neither in the line about a cycle nor in its progress bar."""
    stack.scheduler.ending = None
    stack.scheduler.reason = HOSTILE
    stack.scheduler.end_soon("momentum", 0, after=1.0)
    ran = shell.at_terminal("flow", "run", "momentum", "--wait")
    assert r"\x1b]0;root" in ran.out
    assert not any(each in ran.out for each in (TITLE, ERASE, TURNED))


def test_json_holds_such_text_with_every_character_escaped(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.reason = HOSTILE
    ran = shell("flow", "run", "momentum", "-o", "json")
    assert ran.json["reason"] == HOSTILE
    assert not set("\x1b\x07\x9b\r\u202e") & set(ran.out)


def test_cells_notes_and_errors_are_shown_alike(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.results(Format.TEXT, [], ["FLOW", "NOTE"], [["f", f"{HOSTILE}\ng  fine\tas it is"]])
    screen.notes([HOSTILE])
    fail(HOSTILE)
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1:] == [f"f     {SHOWN}\\ng  fine\tas it is"], "one line for each row"
    assert shown.err == f"note: {SHOWN}\nerror: {SHOWN}\n"


def test_further_lines_look_like_no_facts_and_no_log_lines(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.facts([("status", "stopped"), ("by", "bob\nstatus  running")])
    assert capsys.readouterr().out == "status  stopped\nby      bob\n        status  running\n"
    message = "first\n2026-01-01T00:00:00.000Z  0  INFO  b: second"
    show_log_line(screen, LogLine("0-1", "f", 0, "a", LogLevel.INFO, LogSource.NODE, message, None))
    assert [line[:2] for line in capsys.readouterr().out.splitlines()] == ["- ", "  "]
