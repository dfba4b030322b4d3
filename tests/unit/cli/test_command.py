"""The command itself: help, version, errors, exit codes, a terminal, how fast it starts."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import grpc
import pytest
import typer

from tests.unit.cli.shell import COMMAND, Shell
from tests.unit.client.fake_stack import FakeStack
from tests.unit.client.refusal import Refusal
from tradewind.cli import main
from tradewind.cli.failures import exit_on_errors
from tradewind.client import NotFound

HEAVY = (
    "grpc",
    "google.protobuf",
    "rich",
    "redis",
    "uvloop",
    "tradewind.client",
    "tradewind.server.bootstrap",
    "tradewind.worker",
)


def test_version(shell: Shell) -> None:
    assert shell("--version").out == f"tradewind {version('tradewind')}\n"


def test_help_names_every_command(shell: Shell) -> None:
    out = shell("--help").out

    assert all(f"\n  {command} " in out for command in ("up", "worker", "flow", "cycle", "task", "bench"))
    flow = shell("flow", "--help").out
    commands = ["register", "start", "stop", "run", "status", "watch", "graph", "logs", "delete", "list", "analyze"]
    assert all(f"\n  {command} " in flow for command in commands)


@pytest.mark.parametrize("command", ["flow list", "up"])
def test_error_says_where_misplaced_global_option_belongs(shell: Shell, command: str) -> None:
    refused = shell(*command.split(), "--address", "localhost:7701", ends=2)

    assert f"--address goes before the command: tradewind --address ... {command.split()[0]} ..." in refused.err


def test_help_imports_little() -> None:
    """People who ask for help or press Tab do not want to wait for gRPC; other commands import 600 modules."""
    program = (
        "import sys\nfrom tradewind.cli import main\nsys.argv = ['tradewind', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], len(sys.modules) < 350)\n"
    )

    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert out.splitlines()[-1] == "[] True"


def test_unreachable_server_is_reported(shell: Shell) -> None:
    ran = shell("--address", "localhost:1", "flow", "list", ends=3)

    assert ran.out == ""
    assert ran.err == 'error: cannot reach localhost:1: is "tradewind up" running?\n'


def test_unimplemented_method_hints_at_wrong_address(shell: Shell, stack: FakeStack) -> None:
    message = "this server has no method /tradewind.api.scheduler.v1.SchedulerService/ListFlows"
    stack.scheduler.refusals.append(Refusal(grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN", message))

    assert shell("flow", "list", ends=1).err == (
        f"error: {message}\nthis address serves no scheduler, or an older release of it: "
        "set TRADEWIND_SCHEDULER_ADDRESS to its address, and give no address for all servers\n"
    )


@pytest.mark.parametrize("address", ["http://localhost:7700", "localhost", "localhost:", "localhost:http"])
@pytest.mark.parametrize("command", ["flow list", "worker examples.momentum.nodes"])
def test_malformed_address_is_refused(shell: Shell, address: str, command: str) -> None:
    ran = shell("--address", address, *command.split(), ends=2)

    assert ran.err == f'error: "{address}" is not the address of a server: give host:port, such as localhost:7700\n'


def test_address_option_overrides_environment(shell: Shell, stack: FakeStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_ADDRESS", "localhost:1")

    shell("flow", "list", ends=3)
    shell("--address", stack.address, "flow", "list")


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        (["momentum"], "it needs a cycle: give FLOW CYCLE NODE --run RUN"),
        (["momentum:0:0:model"], "leave it out with the id of a node task"),
        (["task:0a1b"], "leave it out with the id of a node task"),
    ],
)
def test_explain_refuses_run_option_without_cycle(shell: Shell, target: list[str], hint: str) -> None:
    assert f"Invalid value for --run: {hint}\n" in shell("explain", *target, "--run", "1", ends=2).err


def test_usage_errors_are_reported(shell: Shell) -> None:
    assert "No such command 'flw'. Did you mean 'flow'?" in shell("flw", ends=2).err
    assert "No such command 'buy'. There are register, analyze, start, " in shell("flow", "buy", ends=2).err
    assert "No such command 'start'. Did you mean 'flow start'?" in shell("start", "momentum", ends=2).err
    assert "No such command 'logs'. Did you mean 'flow logs', 'task logs'?" in shell("logs", ends=2).err
    assert "No such command 'logs'. Did you mean 'flow logs', 'task logs'?" in shell("cycle", "logs", ends=2).err
    assert "No such command 'list'. There are stats, clear.\n" in shell("cache", "list", ends=2).err
    assert "No such command 'drain'. Did you mean 'worker drain'?" in shell("flow", "drain", ends=2).err
    assert "Invalid value for '-o' / '--format': 'xml' is not one of" in shell("flow", "list", "-o", "xml", ends=2).err
    limit = "Invalid value for '-n' / '--limit': it must be "
    assert f"{limit}greater than or equal to 1\n" in shell("flow", "list", "--limit", "0", ends=2).err
    assert f"{limit}a valid integer\n" in shell("flow", "list", "--limit", "x", ends=2).err
    assert "Missing argument 'NAME'" in shell("flow", "start", ends=2).err
    assert "Invalid value" in shell("flow", "list", "-o", "xml", ends=2).err


@pytest.mark.parametrize(
    ("reason", "subject", "command"),
    [
        ("BACKFILL_NOT_FOUND", 'backfill "report:9"', "flow backfills report"),
        ("BATCH_NOT_FOUND", 'batch "0a1b"', "batch list"),
        ("JOB_NOT_FOUND", 'job "0a1b"', "job list"),
        ("NODE_TASK_NOT_FOUND", 'node task "momentum:7:0:modle"', "cycle show momentum 7"),
        ("NODE_TASK_NOT_FOUND", 'node task "task:0a1b"', "task list"),
        ("NODE_TASK_NOT_FOUND", 'node task "batch:0a1b:3"', "batch list"),
        ("SESSION_NOT_FOUND", 'session "0a1b"', "token list"),
        ("TRIGGER_NOT_FOUND", 'trigger "report"', "trigger list -q QUEUE"),
        ("USER_NOT_FOUND", 'user "ann"', "user list"),
        ("WORKER_NOT_FOUND", 'worker "w1"', "worker list"),
    ],
)
def test_unknown_name_says_what_lists_names(
    capsys: pytest.CaptureFixture[str], reason: str, subject: str, command: str
) -> None:
    with pytest.raises(typer.Exit) as ended, exit_on_errors():
        raise NotFound(f"no {subject}", reason=reason)

    assert (ended.value.exit_code, capsys.readouterr().err) == (2, f"error: no {subject}; see: tradewind {command}\n")


def test_unknown_name_says_no_more_when_the_server_has_said_what_may_be_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    message = 'no flow "momentun"; did you mean "momentum"?'
    with pytest.raises(typer.Exit), exit_on_errors():
        raise NotFound(message, reason="FLOW_NOT_FOUND")

    assert capsys.readouterr().err == f"error: {message}\n"


@pytest.mark.parametrize(
    ("reason", "message"),
    [("FLOW_NOT_FOUND", "no such flow"), ("NODE_TASK_NOT_FOUND", 'no node task "model"')],
)
def test_message_in_another_form_is_shown_as_it_is(
    capsys: pytest.CaptureFixture[str], reason: str, message: str
) -> None:
    with pytest.raises(typer.Exit), exit_on_errors():
        raise NotFound(message, reason=reason)

    assert capsys.readouterr().err == f"error: {message}\n"


def test_closed_output_pipe_is_no_error(stack: FakeStack) -> None:
    for number in range(3000):
        stack.scheduler.log("momentum", f"line {number}")
    command = [*COMMAND, "--address", stack.address, "flow", "logs", "momentum"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()

        assert process.stderr.read() == b""
        process.wait(timeout=30)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["flow list", "--help", "--version", "flow list --help"])
def test_full_output_is_failure_and_not_wrong_usage(stack: FakeStack, words: str, unbuffered: str) -> None:
    command = [*COMMAND, "--address", stack.address, *words.split()]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}

    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)

    assert (ended.returncode, ended.stderr) == (1, "error: cannot write: No space left on device\n")


@pytest.mark.parametrize("words", ["--help", "flow list --help"])
def test_help_into_closed_pipe_is_no_error(words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as closed:
        ended = subprocess.run([*COMMAND, *words.split()], stdout=closed, stderr=subprocess.PIPE, text=True)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_closed_stdout_is_no_error(stack: FakeStack) -> None:
    command = [*COMMAND, "--address", stack.address, "flow", "run", "momentum", "--wait"]

    ended = subprocess.run(["sh", "-c", 'exec "$@" <&- >&-', "sh", *command], stderr=subprocess.PIPE, text=True)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_characters_outside_stdout_encoding_are_escaped(stack: FakeStack) -> None:
    stack.scheduler.log("momentum", "日本 is é")
    command = [*COMMAND, "--address", stack.address, "flow", "logs", "momentum"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}

    ended = subprocess.run(command, capture_output=True, check=True, env=environment)

    assert ended.stdout.decode("latin-1").rstrip().endswith("\\u65e5\\u672c is é")


def test_up_refuses_file_for_its_data(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert f"dir '{tmp_path / 'file'}' is a file" in shell("up", "--data", str(tmp_path / "file"), ends=2).err


def test_argument_in_other_encoding_is_refused(tmp_path: Path) -> None:
    command = [*COMMAND, "flow", "status", "gr\udcfcn"]

    ended = subprocess.run(command, capture_output=True, cwd=tmp_path, timeout=60)

    said = "an argument is not in the encoding of the locale: give it in UTF-8"
    assert (ended.returncode, said in ended.stderr.decode()) == (2, True), ended.stderr.decode()


@pytest.mark.parametrize("allowed", [11, 20, 36, 40])
def test_up_with_few_open_files_says_how_to_allow_more(tmp_path: Path, allowed: int) -> None:
    command = ["sh", "-c", f'ulimit -n {allowed}; exec "$@"', "sh", *COMMAND, "up", "--port", "0", "--data", "here"]

    ended = subprocess.run(command, capture_output=True, cwd=tmp_path, timeout=60)

    assert (ended.returncode, ended.stderr.decode()) == (
        1,
        f"error: {allowed} open files are allowed, and a server needs 256: allow more of them, as in: ulimit -n 1024\n",
    )


def test_ctrl_c_during_startup_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(prog_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tradewind.cli.app.app", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


def test_terminal_shows_coloured_table(shell: Shell) -> None:
    shell("flow", "run", "momentum")

    ran = shell.at_terminal("flow", "list")

    assert ran.code == 0
    assert "\x1b[" in ran.out
    assert "momentum" in ran.out


def test_narrow_terminal_breaks_neither_names_nor_words_of_table(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    wide = shell.at_terminal("flow", "list", columns=120, term="dumb").out.split()

    narrow = shell.at_terminal("flow", "list", columns=40).out

    assert re.sub(r"\x1b\[\d*m", "", narrow).split() == wide
    assert {"FLOW", "STATUS", "momentum"} <= set(wide)


def test_terminal_shows_planned_times_themselves_rather_than_how_far_they_are(shell: Shell) -> None:
    ran = shell.at_terminal("flow", "next", "momentum", "-n", "2")
    assert ran.out.split() == ["2030-03-17T17:46:40.000Z", "2030-03-17T17:47:40.000Z"]
    assert "2030-03-17T17:46:40.000Z  fired" in shell.at_terminal("flow", "firings", "momentum").out


def test_terminal_shows_progress_bar_while_cycle_runs(shell: Shell, stack: FakeStack) -> None:
    """While the cycle runs there is a progress bar; only the line about its end and its outputs remain."""
    stack.scheduler.ending = None
    stack.scheduler.end_soon("momentum", 0, after=1.0)

    ran = shell.at_terminal("flow", "run", "momentum", "--wait")

    assert ran.code == 0
    assert "━" in ran.out
    assert "momentum cycle 0 completed in 250 ms (2 completed)" in ran.out
    assert ran.out.rstrip().endswith("model.forecast = 7")


def test_terminal_without_bars_shows_beginning_and_end_of_cycle(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.ending = None
    stack.scheduler.end_soon("momentum", 0, after=1.0)

    ran = shell.at_terminal("flow", "run", "momentum", "--wait", term="dumb")

    assert ran.lines == [
        "momentum cycle 0 running",
        "momentum cycle 0 completed in 250 ms (2 completed)",
        "model.forecast = 7",
    ]


def test_square_brackets_in_reason_are_shown_verbatim(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.ending = None
    stack.scheduler.reason = "no worker offers [/feed]"
    stack.scheduler.end_soon("momentum", 0, after=1.0)

    ran = shell.at_terminal("flow", "run", "momentum", "--wait")

    assert ran.code == 0
    assert "no worker offers [/feed]" in ran.out


def test_terminal_shows_errors_in_red(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)

    ran = shell.at_terminal("flow", "start", "nobody")

    assert ran.code == 2
    assert ran.out.startswith('\x1b[31merror: no flow "nobody"')


@pytest.mark.parametrize(("term", "no_color"), [("dumb", ""), ("xterm-256color", "1")])
def test_errors_have_no_colour_where_none_is_wanted(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, term: str, no_color: str
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    assert (
        shell.at_terminal("flow", "start", "nobody", term=term).out
        == 'error: no flow "nobody"; see: tradewind flow list\r\n'
    )
