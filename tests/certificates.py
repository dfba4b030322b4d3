"""Certificates for tests: a CA of their own, and what it issues, as the PEM files that people have."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from tradewind.tls import TlsFiles

LOCAL = ("127.0.0.1", "localhost")


class Authority:
    """A CA, whose certificate is in `<home>/<name>.ca.pem`."""

    def __init__(self, home: Path, name: str = "own") -> None:
        self._home = home
        self._ca = trustme.CA(organization_name=name)
        self.ca = home / f"{name}.ca.pem"
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(self, file: str, *names: str, expired: bool = False) -> TlsFiles:
        """Write `<file>.pem` and `<file>.key`, over those before, for the names, 127.0.0.1 and localhost."""
        now = datetime.now(UTC)
        issued = self._ca.issue_cert(
            *names,
            *LOCAL,
            common_name=file,
            not_before=now - timedelta(days=2),
            not_after=now + timedelta(days=-1 if expired else 1),
        )
        cert, key = self._home / f"{file}.pem", self._home / f"{file}.key"
        issued.private_key_pem.write_to_path(key)
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return TlsFiles(self.ca, cert, key)
