"""`tradewind login` and `logout` against servers that are away, and with tokens that are not there."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.cli.shell import Shell
from tradewind.cli.stored_tokens import store_token, stored_token

AWAY = "localhost:1"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_logout_keeps_token_when_server_is_unreachable(shell: Shell) -> None:
    store_token(AWAY, "tw_1")

    stderr = shell("--address", AWAY, "logout", ends=3).err

    assert stderr.splitlines() == [
        f"note: still logged in at {AWAY}: log out again once the server answers",
        f'error: cannot reach {AWAY}: is "tradewind up" running?',
    ]
    assert stored_token(AWAY) == "tw_1"


def test_login_refuses_empty_token_file(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_TOKEN", "tw_2")
    (file := tmp_path / "token").write_text("\n")

    stderr = shell("--address", AWAY, "login", "--token-file", str(file), ends=2).err

    assert stderr == f"error: {file} is empty: it must hold a token\n"


def test_login_refuses_empty_pipe(shell: Shell) -> None:
    stderr = shell("--address", AWAY, "login", input="\n", ends=2).err
    assert stderr == "error: stdin is empty: pipe a token to it, or give one with --token or --token-file\n"


def test_logins_at_the_same_time_are_all_kept() -> None:
    addresses = [f"stack-{number}:7700" for number in range(30)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store_token, addresses, addresses))

    assert [stored_token(address) for address in addresses] == addresses
