"""What a shell offers on Tab: names that the servers know, or nothing."""

import socket
from collections.abc import Callable

import pytest

from tests.unit.cli.shell import Shell
from tests.unit.client.fake_stack import FakeStack
from tradewind.api.trigger.v1.trigger_pb2 import Trigger
from tradewind.cli import completion

Tab = Callable[[str], list[str]]


@pytest.fixture
def tab(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Tab:
    """Returns what is offered after a line, as bash asks for it; nothing else may be printed."""
    monkeypatch.setattr(completion, "PATIENCE", 60)

    def press(line: str) -> list[str]:
        # Bash begins a new word at each of these.
        words = line.replace("=", " = ").replace(":", " : ").split(" ")
        monkeypatch.setenv("_TRADEWIND_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        ran = shell()
        assert ran.err == ""
        return ran.out.split()

    return press


@pytest.mark.parametrize(
    "line",
    [
        "tradewind flow run ",
        "tradewind flow run mom",
        "tradewind flow watch ",
        "tradewind cycle show ",
        "tradewind explain ",
        "tradewind job stop ",
        "tradewind trigger save nightly --on-finished ",
        "tradewind flow run --input month=2001-04 ",
        "tradewind trigger save nightly --on-finished=mom",
    ],
)
def test_flows_are_offered(tab: Tab, line: str) -> None:
    assert tab(line) == ["momentum"]


def test_flows_of_named_server_are_offered(tab: Tab, stack: FakeStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_ADDRESS", "localhost:1")

    assert tab(f"tradewind --address {stack.address} flow run ") == ["momentum"]
    assert tab(f"tradewind --address={stack.address} flow run mom") == ["momentum"]


@pytest.mark.parametrize(
    "line",
    [
        "tradewind explain momentum ",
        "tradewind flow logs momentum --node ",
        "tradewind cycle show momentum --output ",
        "tradewind cycle show momentum 0 --items ",
        "tradewind cycle approve momentum 0 ",
        "tradewind cycle rerun momentum --from ",
        "tradewind cycle stop momentum --node ",
    ],
)
def test_nodes_of_typed_flow_are_offered(tab: Tab, line: str) -> None:
    assert tab(line) == ["feed", "model"]


def test_workers_node_types_and_triggers_are_offered(tab: Tab, stack: FakeStack) -> None:
    stack.trigger.saved.append(Trigger(queue="reports", trigger_id="nightly"))

    assert tab("tradewind worker drain ") == ["w1"]
    assert tab("tradewind task submit ") == ["feed"]
    assert tab("tradewind batch submit ") == ["feed"]
    assert tab("tradewind trigger show -q reports ") == ["nightly"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tradewind flow list --status ", "registered running paused stopped completed failed deleting"),
        ("tradewind cycle list momentum --status f", "failed"),
        ("tradewind task list --status s", "suspended skipped"),
        ("tradewind batch list --status q", "queued"),
        ("tradewind job rerun momentum --status pa", "partial"),
        ("tradewind trigger save nightly --status t", "timeout"),
        ("tradewind flow logs momentum --level w", "warning"),
        ("tradewind notification send noon --severity e", "error"),
        ("tradewind flow list -o ", "text json"),
    ],
)
def test_words_of_options_are_offered(tab: Tab, line: str, offered: str) -> None:
    assert tab(line) == offered.split()


def test_address_that_is_typed_is_asked(tab: Tab, stack: FakeStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_ADDRESS", "localhost:1")

    assert tab("tradewind flow run ") == []
    assert tab(f"tradewind --address {stack.address} flow run ") == ["momentum"]


@pytest.mark.parametrize(
    "line",
    [
        "tradewind explain nobody ",
        "tradewind flow logs --node ",
        "tradewind trigger show ",
        "tradewind --address nonsense flow run ",
        "tradewind --tls-ca /nowhere flow run ",
    ],
)
def test_nothing_is_offered_or_said_when_names_cannot_be_found(tab: Tab, line: str) -> None:
    assert tab(line) == []


def test_silent_server_is_given_up(tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert tab(f"tradewind --address 127.0.0.1:{silent.getsockname()[1]} flow run ") == []


def test_name_that_shell_could_run_is_not_offered(tab: Tab, stack: FakeStack) -> None:
    stack.registry.workers[0].worker_id = "\\$(touch-me)"

    assert tab("tradewind worker drain ") == []
