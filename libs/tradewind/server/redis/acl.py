"""ACL users: each service may touch only its own keys and channels."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tradewind.server.private_file import write_private

# Commands that -@admin -@dangerous leave and that still reach beyond a user's own keys: SCRIPT FLUSH, the parts of
# FUNCTION that list or remove others' functions, SELECT, and commands that look at everybody's keys.
_COMMANDS = "+@all -@admin -@dangerous -script|flush -function +function|load -select -randomkey -dbsize -scan"

ADMIN = "admin"
"""The user who may do anything; services log in as their own users."""

NOBODY = "user default reset off ~* &* +@all"
"""The user of a connection that has not logged in; it can do nothing, because it cannot log in. It keeps its rights:
Redis 7.0 loads the append-only file as this user, and would otherwise leave out every transaction, which is how the
file holds what scripts wrote."""


@dataclass(frozen=True, slots=True)
class AclUser:
    """A store user: its name, glob patterns for its keys and channels, and the commands it may use.

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


def acl_lines(users: Iterable[AclUser], passwords: Mapping[str, str]) -> list[str]:
    """Return the lines of an ACL file: one that keeps out everybody else, ADMIN's, and those of the users.

    `passwords` maps the name of each user, including ADMIN, to its password. Raises KeyError when one is missing.
    """
    return [
        NOBODY,
        f"user {ADMIN} on #{password_digest(passwords[ADMIN])} ~* &* +@all",
        *(user.rule(passwords[user.name]) for user in users),
    ]


def write_acl_file(path: Path, users: Iterable[AclUser], passwords: Mapping[str, str]) -> None:
    """Write an ACL file, readable by its owner only. Raises KeyError when a password is missing."""
    write_private(path, "\n".join(acl_lines(users, passwords)) + "\n")


def password_digest(password: str) -> str:
    """Return what an ACL file holds for a password."""
    return hashlib.sha256(password.encode()).hexdigest()
