"""Who calls, according to their mTLS certificate, and which names may call."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tradewind.server.faults import PermissionDenied
from tradewind.server.interception import Behavior, Context

_NAMES = "x509_subject_alternative_name"
_VERIFIED_NAMES = ("peer_dns", "peer_uri")
_HEALTH = "/grpc.health.v1.Health/"


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """The holder of the certificate that a caller has shown, as vouched for by the CA."""

    names: tuple[str, ...]
    """Its subject alternative names: DNS names, addresses, URIs such as `spiffe://cluster/tradewind/scheduler`."""

    @property
    def service(self) -> str:
        """The service that the first name stands for: the last part of a URI's path, or a DNS name's first label."""
        name = self.names[0] if self.names else ""
        return name.rstrip("/").rpartition("/")[2] if "://" in name else name.partition(".")[0]


def peer_identity(context: Context) -> PeerIdentity | None:
    """Return who calls; None for a caller without a certificate, or in plain text."""
    names = tuple(name.decode(errors="replace") for name in context.auth_context().get(_NAMES, ()))
    return PeerIdentity(names) if names else None


def peer_names(context: Context) -> tuple[str, ...]:
    """Return the DNS names and URIs in the caller's certificate; none for a caller without one, or in plain text."""
    shown = context.auth_context()
    return tuple(name.decode(errors="replace") for kind in _VERIFIED_NAMES for name in shown.get(kind, ()))


class AllowedCallers:
    """A middleware that raises PermissionDenied for callers without an allowed name; health answers everybody."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """Take patterns in which * stands for any text."""
        self._patterns = tuple(patterns)

    def around(self, method: str, behavior: Behavior) -> Behavior:
        """Check the caller before each call of one method."""
        if method.startswith(_HEALTH):
            return behavior

        async def allowed(request: Any, context: Context) -> Any:
            identity = peer_identity(context)
            names = identity.names if identity is not None else ()
            if not any(fnmatchcase(name, pattern) for name in names for pattern in self._patterns):
                shown = ", ".join(names) or "none"
                raise PermissionDenied(
                    "CALLER_NOT_ALLOWED",
                    f"no name in the caller's certificate ({shown}) may call this server: "
                    "TRADEWIND_TLS_ALLOWED_NAMES lists those that may",
                )
            return await behavior(request, context)

        return allowed
