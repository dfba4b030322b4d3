"""Makes the Secrets of k8s/: the passwords of the store's users, its ACL file, and the token that servers share.

    python tools/store_secrets.py | kubectl apply -f -     random new passwords and a random new token
    python tools/store_secrets.py --dev                    the ACL file of the overlay dev, with its known passwords

Apply it once: services read their password when they start. To change passwords, apply it again and restart the store,
then the services; this also changes the token. docs/access.md and docs/security.md say how to change either without
downtime.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Mapping
from typing import Any

import yaml

from tradewind.server.redis.acl import ADMIN, acl_lines, password_digest
from tradewind.standalone.services import ACL_USERS

BACKUP = "resetkeys resetchannels -@all +ping +sync +psync +replconf"
"""What the backup user may do: receive the whole store, and nothing else."""

PROBE = "user probe on nopass resetkeys resetchannels -@all +ping"
"""The user of the store's own health checks."""

_NAMESPACE = "tradewind"


def user_names() -> list[str]:
    """Return the users that have a password, in order."""
    return sorted([*(user.name for user in ACL_USERS), ADMIN, "backup"])


def acl_file(passwords: Mapping[str, str]) -> str:
    """Return the ACL file for the users that have a password; it holds only hashes."""
    services = sorted((user for user in ACL_USERS if user.name in passwords), key=lambda user: user.name)
    nobody, admin, *rules = acl_lines(services, passwords)
    backup = f"user backup on #{password_digest(passwords['backup'])} {BACKUP}"
    lines = [nobody, admin, backup, PROBE, *rules]
    return "\n".join(lines) + "\n"


def secret_manifests(passwords: Mapping[str, str], service_token: str) -> list[dict[str, Any]]:
    """Return the Secrets `store-passwords`, `store-users` and `service-token`."""
    texts = {
        "store-passwords": dict(passwords),
        "store-users": {"users.acl": acl_file(passwords)},
        "service-token": {"token": service_token},
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": _NAMESPACE},
            "type": "Opaque",
            "stringData": text,
        }
        for name, text in texts.items()
    ]


def main() -> int:
    """Print the manifests or the ACL file; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dev", action="store_true", help="print the ACL file of the overlay dev")
    if parser.parse_args().dev:
        print(acl_file({name: f"dev-{name}" for name in user_names()}), end="")
    else:
        passwords = {name: secrets.token_urlsafe(32) for name in user_names()}
        print(yaml.safe_dump_all(secret_manifests(passwords, secrets.token_urlsafe(32)), sort_keys=False), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
