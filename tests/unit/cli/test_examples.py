"""Commands for operators have an example in their help, and the example is valid."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from tests.unit.cli.shell import Shell
from tradewind.cli.app import app
from tradewind.cli.examples import EXAMPLES
from tradewind.client import BatchStatus, CycleStatus, FlowStatus, NodeTaskStatus

OPERATOR_GROUPS = {"token", "user", "job", "dead-letter", "config", "backup"}
OPERATOR_COMMANDS = {"login", "logout", "whoami", "doctor", "explain", "queue", "worker list", "worker drain"}


def commands(command: Any, *words: str) -> Iterator[tuple[str, Any]]:
    """Yield each command with its words."""
    if not hasattr(command, "commands"):
        yield " ".join(words), command
        return
    for name, each in command.commands.items():
        yield from commands(each, *words, name)


COMMANDS = dict(commands(get_command(app)))


def test_every_operator_command_has_an_example() -> None:
    required = OPERATOR_COMMANDS | {name for name in COMMANDS if name.partition(" ")[0] in OPERATOR_GROUPS}
    assert required <= set(EXAMPLES)
    assert set(EXAMPLES) <= set(COMMANDS), "there is no such command"


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"init", "up", "worker run"}))
def test_command_has_output_format_option(name: str) -> None:
    assert any("-o" in parameter.opts for parameter in COMMANDS[name].params)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_parses_and_is_shown_in_help(name: str, shell: Shell) -> None:
    example = EXAMPLES[name]
    assert f"{example} ".startswith(f"{name} ")
    arguments = shlex.split(example)[len(name.split()) :]
    # Parse the whole line without running it: a missing argument or an unknown option is an error.
    COMMANDS[name].make_context(name, arguments)
    assert f"Example: tradewind {example}" in " ".join(shell(*name.split(), "--help").out.split())


@pytest.mark.parametrize("group", sorted({name.rpartition(" ")[0] for name in COMMANDS}))
def test_command_summaries_are_not_truncated(group: str, shell: Shell) -> None:
    listed = shell(*group.split(), "--help").out.partition("\nCommands:\n")[2]
    assert "  " in listed
    assert "..." not in listed


@pytest.mark.parametrize("words", [(), ("flow",), ("flow", "run"), ("worker",)])
def test_short_help_option_equals_long_one(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell(*words, "-h") == shell(*words, "--help")


STATUSES = {
    "flow list": FlowStatus,
    "cycle list": CycleStatus,
    "job rerun": CycleStatus,
    "job stop": CycleStatus,
    "task list": NodeTaskStatus,
    "batch list": BatchStatus,
}


@pytest.mark.parametrize("name", STATUSES)
def test_help_lists_the_statuses_to_filter_by(name: str) -> None:
    (option,) = [each for each in COMMANDS[name].params if "--status" in each.opts]
    assert option.metavar == "|".join(each for each in STATUSES[name] if each != "unknown")
