"""What an identifier looks like, and how new ones are made."""

import os
import re
from hashlib import blake2b

from tradewind.server.faults import InvalidInput, Violation

IDENTIFIER = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
"""The regular expression of an identifier."""
_matches = re.compile(IDENTIFIER).fullmatch
_RUN_ID = 20


def is_identifier(value: str) -> bool:
    """Say whether `value` may name a flow, node, worker, user or trigger."""
    return _matches(value) is not None


def check_identifier(path: str, value: str) -> Violation | None:
    """Return what is wrong with the identifier in field `path`, or None when it is fine."""
    if is_identifier(value):
        return None
    if not value:
        return Violation(path, "must not be empty")
    if len(value) > 128:
        return Violation(path, f"must have at most 128 characters, has {len(value)}")
    return Violation(
        path, f'"{value}" must begin with a letter or digit and contain only letters, digits, ".", "_" and "-"'
    )


def require_identifiers(**fields: str) -> None:
    """Check fields of a request that must be identifiers, by their paths. Raises InvalidInput with every fault."""
    faults = [fault for path, value in fields.items() if (fault := check_identifier(path, value)) is not None]
    if faults:
        raise InvalidInput(faults)


def request_id_faults(request_id: str, path: str = "request_id") -> list[Violation]:
    """Return what is wrong with a caller's request id, which makes repeating the request harmless."""
    if len(request_id) > 128:
        return [Violation(path, f"must have at most 128 characters, has {len(request_id)}")]
    if not request_id.isprintable() or " " in request_id:
        return [Violation(path, "must contain only printable characters, without spaces")]
    return []


def new_run_id() -> str:
    """Return a random identifier for a run of a cycle: 20 characters, 80 bits."""
    return new_run_ids(1)[0]


def new_run_ids(count: int) -> list[str]:
    """Return so many new ids of runs; all together cost a single call of the system."""
    drawn = os.urandom(_RUN_ID // 2 * count).hex()
    return [drawn[at : at + _RUN_ID] for at in range(0, len(drawn), _RUN_ID)]


def run_id_of(*parts: str) -> str:
    """Return the identifier of the run that stands for `parts`, in the form of a random one."""
    return blake2b("\0".join(parts).encode(), digest_size=10).hexdigest()
