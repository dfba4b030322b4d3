"""What a command works with, and what it passes on to a process of its own."""

import pwd
from pathlib import Path

import pytest

from tradewind.cli.bench.command import worker_command, worker_environment
from tradewind.cli.session import Session
from tradewind.cli.stored_tokens import store_token
from tradewind.tls import TlsFiles


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Session:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("TOKEN", "ADDRESS", "CODEC"):
        monkeypatch.delenv(f"TRADEWIND_{name}", raising=False)
    return Session("127.0.0.1:7700", TlsFiles(ca="ca.pem"), "acme.codecs:codec")


def test_benchmark_worker_gets_codec_token_and_tls_of_session(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert worker_environment(session) == {"TRADEWIND_CODEC": "acme.codecs:codec"}
    store_token(session.addresses.access, "kept")
    assert worker_environment(session) == {"TRADEWIND_CODEC": "acme.codecs:codec", "TRADEWIND_TOKEN": "kept"}
    assert "--tls-ca=ca.pem" in worker_command(session)
    assert "kept" not in " ".join(worker_command(session))
    monkeypatch.setenv("TRADEWIND_TOKEN", "given")
    assert worker_environment(session)["TRADEWIND_TOKEN"] == "given"


@pytest.mark.parametrize("text", ["garbage", "[]", '{"localhost'])
def test_damaged_token_file_is_named(session: Session, tmp_path: Path, text: str) -> None:
    file = tmp_path / "tradewind" / "tokens.json"
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"{file} is damaged: delete it, and log in again"):
        _ = session.token


def test_user_without_a_home_has_no_stored_token(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name)
    assert session.token is None
    with pytest.raises(ValueError, match="no home directory to keep the token in"):
        store_token(session.addresses.access, "kept")


def test_tls_flags_are_completed_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CERT", "KEY", "SERVER_NAME"):
        monkeypatch.delenv(f"TRADEWIND_TLS_{name}", raising=False)
    monkeypatch.setenv("TRADEWIND_TLS_CA", "ca.pem")
    options = dict.fromkeys(("address", "codec", "tls_ca", "tls_cert", "tls_key", "tls_server_name"))
    assert Session.of(options).tls is None
    assert Session.of(options | {"tls_server_name": "stack"}).tls == TlsFiles(ca="ca.pem", server_name="stack")
