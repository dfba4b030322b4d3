"""Identifies callers by the certificates they show, where a setting says what the holder may do."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from tradewind.server.access.identity import SERVICE, Identity
from tradewind.server.access.roles import Role
from tradewind.server.interception import Context
from tradewind.server.peer_identity import peer_names
from tradewind.server.settings import parts_of

_FORM = "NAME=ROLE, such as scheduler.tradewind.svc=service"
_ROLES = (Role.SERVICE, Role.WORKER, Role.OPERATOR, Role.ADMIN)


class CertificateRoles:
    """Knows callers by the DNS names and URIs in their certificates. A name that is not listed identifies nobody."""

    def __init__(self, roles: Sequence[tuple[str, Role]]) -> None:
        """Take pairs of a name pattern, in which * stands for any text, and a role; the first match wins."""
        self._roles = tuple(roles)

    def __bool__(self) -> bool:
        return bool(self._roles)

    @property
    def names_servers(self) -> bool:
        """Whether Tradewind's own servers are known by their certificates."""
        return any(role is Role.SERVICE for _, role in self._roles)

    def identity(self, context: Context) -> Identity | None:
        """Return who calls; None for a caller without a certificate, or without a known name in it."""
        names = peer_names(context)
        for pattern, role in self._roles:
            for name in names:
                if fnmatchcase(name, pattern):
                    # No user on record can have this id, so nobody gains another user's sessions through a name.
                    return SERVICE if role is Role.SERVICE else Identity(f"certificate:{name}", role)
        return None


def certificate_roles_of(text: str) -> CertificateRoles:
    """Read `NAME=ROLE,...`. Raises ValueError."""
    roles = []
    for part in parts_of(text):
        name, separator, role = (each.strip() for each in part.rpartition("="))
        if not separator or not name:
            raise ValueError(f'"{part}" is not a name and a role; write {_FORM}')
        if role not in _ROLES:
            raise ValueError(
                f'"{role}" is not a role for a certificate: use one of {", ".join(_ROLES)}; users need tokens, so that '
                "their data and quotas are on record"
            )
        roles.append((name, Role(role)))
    return CertificateRoles(roles)
