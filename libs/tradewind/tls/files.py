"""The PEM files that TLS uses, what they hold, and whether they have been replaced."""

import logging
import os
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from cryptography import x509

SYSTEM = "system"
"""Given instead of a CA file: the CAs that this machine trusts."""

_CHECK_S = 1.0
"""The shortest time between two checks of the files."""

_TIME = "%Y-%m-%dT%H:%M:%SZ"

logger = logging.getLogger("tradewind.tls")


class TlsError(ValueError):
    """A file that cannot be used; the message names it and says what to do."""


@dataclass(frozen=True, slots=True)
class Pem:
    """What the files hold, checked; None for a file that was not named."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files.

    `ca` holds the CAs that are trusted to identify the other side; "system" stands for those that this machine trusts.
    `cert` and `key` are one's own certificate, with the chain below it, and its key. `server_name` is the name in the
    servers' certificates, if their address does not have it.
    """

    prefix: ClassVar[str] = "TRADEWIND_TLS_"
    """The prefix of the variables that name these files."""

    ca: Path | str | None = None
    cert: Path | str | None = None
    key: Path | str | None = None
    server_name: str | None = None

    @classmethod
    def find(
        cls,
        ca: Path | str | None = None,
        cert: Path | str | None = None,
        key: Path | str | None = None,
        server_name: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Self | None:
        """Return what is given, or else what the variables with `prefix` name; None, for plain text, without either."""
        known = os.environ if environment is None else environment
        found = cls(
            ca or known.get(cls.variable("ca")) or None,
            cert or known.get(cls.variable("cert")) or None,
            key or known.get(cls.variable("key")) or None,
            server_name or known.get(cls.variable("server_name")) or None,
        )
        return found if found != cls() else None

    @classmethod
    def variable(cls, field: str) -> str:
        """Return the environment variable that names a field."""
        return cls.prefix + field.upper()

    def read(self) -> Pem:
        """Return what the files hold.

        Raises TlsError when a file is missing, holds no certificate, has expired, or is not the key of the certificate.
        """
        if bool(self.cert) != bool(self.key):
            present, missing = ("certificate", "key") if self.cert else ("key", "certificate")
            raise TlsError(
                f"TLS: there is a {present} without its {missing}: "
                f"set {self.variable('cert')} and {self.variable('key')}"
            )
        ca = None
        if self.ca and str(self.ca) != SYSTEM:
            ca = _read(self.ca, self.variable("ca"))
            _certificates(ca, self.ca, self.variable("ca"))
        if not (self.cert and self.key):
            return Pem(ca, None, None)
        cert, key = _read(self.cert, self.variable("cert")), _read(self.key, self.variable("key"))
        leaf = _certificates(cert, self.cert, self.variable("cert"))[0]
        now = datetime.now(UTC)
        if leaf.not_valid_after_utc < now:
            raise TlsError(
                f"TLS: the certificate in {self.cert} expired at {leaf.not_valid_after_utc:{_TIME}}: replace it"
            )
        if leaf.not_valid_before_utc > now:
            raise TlsError(
                f"TLS: the certificate in {self.cert} is valid only from {leaf.not_valid_before_utc:{_TIME}}: "
                "check this machine's clock"
            )
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.cert, self.key, password=_no_password)
        except (OSError, TlsError) as error:
            reason = error if isinstance(error, TlsError) else getattr(error, "reason", None) or error
            raise TlsError(
                f"TLS: {self.key} does not hold the key of the certificate in {self.cert}: {reason}; the key must be "
                "in a PEM file without a password, made together with the certificate"
            ) from None
        return Pem(ca, cert, key)

    def stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Return a value that changes when a file is replaced."""
        return tuple(_stamp(path) for path in (self.ca, self.cert, self.key) if path)


class StoreTlsFiles(TlsFiles):
    """The files for a store at `rediss://`."""

    __slots__ = ()
    prefix: ClassVar[str] = "TRADEWIND_STORE_TLS_"


class WatchedFiles:
    """What the files hold now, checked at most once a second. Usable from any thread.

    While a new set is incomplete, as between writing a certificate and writing its key, the previous set stays in use.
    """

    def __init__(self, files: TlsFiles, check_s: float = _CHECK_S) -> None:
        """Read the files. Raises TlsError when they are not good."""
        self._files = files
        self._check_s = check_s
        self._lock = threading.Lock()
        self._stamp = files.stamp()
        self._pem = files.read()
        self._rejected_stamp: object = None
        self._next_check = time.monotonic() + check_s

    def current(self) -> Pem:
        """Return what the files hold; the same object until they are replaced."""
        if time.monotonic() < self._next_check:
            return self._pem
        with self._lock:
            stamp = self._files.stamp()
            if stamp != self._stamp:
                self._read(stamp)
            self._next_check = time.monotonic() + self._check_s
            return self._pem

    def _read(self, stamp: object) -> None:
        try:
            pem = self._files.read()
        except TlsError as error:
            if stamp != self._rejected_stamp:
                self._rejected_stamp = stamp
                logger.warning("the new TLS files cannot be used, the previous ones stay in use: %s", error)
            return
        if self._files.stamp() != stamp:
            # Replaced while they were being read: the next check takes them.
            return
        self._stamp, self._pem, self._rejected_stamp = self._files.stamp(), pem, None
        logger.info("TLS files have been replaced: %s", self._files.cert or self._files.ca)


def _read(path: Path | str, variable: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TlsError(f"TLS: cannot read {path}: {error.strerror}; check {variable}") from None


def _certificates(pem: bytes, path: Path | str, variable: str) -> "list[x509.Certificate]":
    # This import takes a while, and is needed only with TLS.
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise TlsError(f"TLS: {path} holds no certificate in PEM form; check {variable}") from None


def _no_password() -> str:
    raise TlsError("it is protected by a password")


def _stamp(path: Path | str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
