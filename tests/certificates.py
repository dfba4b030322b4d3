"""Certificates for tests: CAs, and certificates that they issue, as PEM files."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tradewind.tls import TlsFiles

LOCAL = ("127.0.0.1", "localhost")


class Authority:
    """A CA, whose own certificate is in `<home>/<name>.ca.pem`."""

    def __init__(self, home: Path, name: str = "own") -> None:
        self._home = home
        self._ca = trustme.CA(organization_name=name)
        self.ca = home / f"{name}.ca.pem"
        self._ca.cert_pem.write_to_path(self.ca)

    def issue_uri(self, file: str, uri: str) -> TlsFiles:
        """Write `<file>.pem` and `<file>.key` for a client whose only name is a URI, as SPIFFE has it."""
        own = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes())
        signer = serialization.load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        now = datetime.now(UTC)
        issued = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, file)]))
            .issuer_name(issuer.subject)
            .public_key(own.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=True)
            .sign(signer, hashes.SHA256())
        )
        cert, key = self._home / f"{file}.pem", self._home / f"{file}.key"
        cert.write_bytes(issued.public_bytes(serialization.Encoding.PEM))
        key.write_bytes(
            own.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return TlsFiles(self.ca, cert, key)

    def issue(self, file: str, *names: str, expired: bool = False) -> TlsFiles:
        """Write `<file>.pem` and `<file>.key`, replacing earlier ones, for the names, 127.0.0.1 and localhost."""
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
