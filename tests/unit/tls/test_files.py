"""TLS files: faults are reported, and new files are used once they are complete."""

import os
import re
import ssl
from pathlib import Path

import pytest

from tests.certificates import Authority
from tradewind.server.settings import CommonSettings, load_settings
from tradewind.tls import SYSTEM, StoreTlsFiles, TlsError, TlsFiles, server_credentials
from tradewind.tls.files import WatchedFiles


def refusal(files: TlsFiles) -> str:
    with pytest.raises(TlsError) as caught:
        files.read()
    return str(caught.value)


def test_files_that_are_not_given_come_from_the_environment() -> None:
    environment = {"TRADEWIND_TLS_CA": "ca.pem", "TRADEWIND_TLS_CERT": "own.pem", "TRADEWIND_TLS_KEY": "own.key"}

    assert TlsFiles.find(environment={}) is None
    assert TlsFiles.find(server_name="gate", environment={}) == TlsFiles(server_name="gate")
    assert TlsFiles.find(environment=environment) == TlsFiles("ca.pem", "own.pem", "own.key")
    assert TlsFiles.find("other.pem", environment=environment) == TlsFiles("other.pem", "own.pem", "own.key")


def test_system_cas_need_no_file() -> None:
    assert TlsFiles(ca=SYSTEM).read().ca is None


def test_a_missing_file_is_named_with_its_variable(authority: Authority, tmp_path: Path) -> None:
    absent = tmp_path / "absent.pem"
    files = authority.issue("own")

    assert refusal(TlsFiles(absent)) == (
        f"TLS: cannot read {absent}: No such file or directory; check TRADEWIND_TLS_CA"
    )
    assert f"cannot read {absent}" in refusal(TlsFiles(files.ca, files.cert, absent))


def test_faults_of_store_files_name_the_store_variables(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    files = authority.issue("own")
    monkeypatch.setenv("TRADEWIND_STORE_TLS_CERT", str(files.cert))
    named = load_settings(CommonSettings).store_tls_files()
    assert named is not None
    assert "set TRADEWIND_STORE_TLS_CERT and TRADEWIND_STORE_TLS_KEY" in refusal(named)
    assert "check TRADEWIND_STORE_TLS_CA" in refusal(StoreTlsFiles("absent.pem"))
    assert "check TRADEWIND_STORE_TLS_CERT" in refusal(StoreTlsFiles(None, files.key, files.key))


def test_a_certificate_needs_its_key(authority: Authority) -> None:
    files, other = authority.issue("own"), authority.issue("other")

    assert "a certificate without its key: set TRADEWIND_TLS_CERT" in refusal(TlsFiles(files.ca, files.cert))
    assert "a key without its certificate" in refusal(TlsFiles(files.ca, key=files.key))
    mixed = refusal(TlsFiles(files.ca, files.cert, other.key))
    assert f"{other.key} does not hold the key of the certificate in {files.cert}" in mixed


def test_file_without_a_certificate_is_reported(authority: Authority, tmp_path: Path) -> None:
    files, text = authority.issue("own"), tmp_path / "text.pem"
    text.write_text("hello", encoding="utf-8")

    assert f"{text} holds no certificate in PEM form" in refusal(TlsFiles(text))
    assert f"{text} holds no certificate in PEM form" in refusal(TlsFiles(files.ca, text, files.key))
    assert f"{text} does not hold the key of the certificate" in refusal(TlsFiles(files.ca, files.cert, text))


def test_expired_certificate_is_reported(authority: Authority) -> None:
    files = authority.issue("own", expired=True)

    assert re.search(r" expired at [0-9-]{10}T[0-9:]{8}Z: replace it$", refusal(files))


def test_server_needs_a_certificate_and_with_mtls_a_ca(authority: Authority) -> None:
    files = authority.issue("own")

    with pytest.raises(TlsError, match="a server needs a certificate and its key"):
        server_credentials(TlsFiles(files.ca), require_client_cert=False)
    with pytest.raises(TlsError, match="TRADEWIND_TLS_CA must name the file of their CA"):
        server_credentials(TlsFiles(None, files.cert, files.key), require_client_cert=True)


def test_replaced_files_are_used_once_they_are_complete(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = authority.issue("own")
    watched = WatchedFiles(files, check_s=0)
    first = watched.current()
    assert watched.current() is first

    renewed = authority.issue("renewed")
    assert renewed.cert is not None
    assert renewed.key is not None
    os.replace(renewed.cert, tmp_path / "own.pem")
    assert watched.current() is first
    assert watched.current() is first
    assert [record.levelname for record in caplog.records] == ["WARNING"], "it is said once"

    os.replace(renewed.key, tmp_path / "own.key")
    second = watched.current()
    assert second is not first
    assert second == files.read()


def test_file_that_vanishes_while_it_is_read_leaves_the_previous_ones_in_use(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = WatchedFiles(authority.issue("own"), check_s=0)
    first = watched.current()
    authority.issue("own")

    def vanished(*_args: object, **_options: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", vanished)

    assert watched.current() is first


def test_vanished_files_leave_the_previous_ones_in_use(authority: Authority, tmp_path: Path) -> None:
    watched = WatchedFiles(authority.issue("own"), check_s=0)
    first = watched.current()
    (tmp_path / "own.pem").unlink()

    assert watched.current() is first
