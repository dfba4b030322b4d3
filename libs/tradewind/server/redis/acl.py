"""ACL users: each service may touch its own keys and channels only."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tradewind.server.private_file import write_private

# What is left after -@admin -@dangerous and yet reaches beyond a user's own keys: SCRIPT FLUSH, whatever of FUNCTION
# tells of others' functions or takes them away, SELECT and the commands that look at everybody's keys.
_COMMANDS = "+@all -@admin -@dangerous -script|flush -function +function|load -select -randomkey -dbsize -scan"

NOBODY = "user default reset off ~* &* +@all"
"""Whoever has not logged in, which is all that this user cannot do: it keeps its rights, because Redis 7.0 loads the
append-only file as this user, and would leave out every transaction, as what scripts wrote stands there."""


@dataclass(frozen=True, slots=True)
class AclUser:
    """A store user: its name, glob patterns of the keys and channels it may touch, and the commands it may use.

    Braces in a pattern are literal, so `trading_flow:{f*` covers the tags `{f0}`, `{f1}` and so on.
    """

    name: str
    patterns: tuple[str, ...]
    channels: tuple[str, ...] = ()
    commands: str = _COMMANDS

    def rule(self, password: str) -> str:
        """Return the line of an ACL file for this user; it holds the password's hash, not the password."""
        keys = " ".join(f"~{pattern}" for pattern in self.patterns)
        channels = " ".join(["resetchannels", *(f"&{channel}" for channel in self.channels)])
        return f"user {self.name} on #{password_digest(password)} resetkeys {keys} {channels} {self.commands}"


def acl_lines(users: Iterable[AclUser], passwords: Mapping[str, str], admin: str = "admin") -> list[str]:
    """Return the lines of an ACL file: nobody else, `admin` who may do all, and the users, in this order.

    `passwords` maps the name of each user, `admin` included, to its password. Raises KeyError when one is missing.
    """
    return [
        NOBODY,
        f"user {admin} on #{password_digest(passwords[admin])} ~* &* +@all",
        *(user.rule(passwords[user.name]) for user in users),
    ]


def write_acl_file(path: Path, users: Iterable[AclUser], passwords: Mapping[str, str], admin: str = "admin") -> None:
    """Write an ACL file, readable by its owner only. Raises KeyError when a password is missing."""
    write_private(path, "\n".join(acl_lines(users, passwords, admin)) + "\n")


def password_digest(password: str) -> str:
    """Return what stands in an ACL file for a password."""
    return hashlib.sha256(password.encode()).hexdigest()
