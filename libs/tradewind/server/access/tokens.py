"""The text of a token: its record's partition, and a secret; servers and stores keep and pass on only its digest."""

import hashlib
import re
import secrets

from tradewind.server.partitions import PARTITIONS, partition_of

_FORM = re.compile(r"tw_([0-9a-f]{2})_[A-Za-z0-9_-]{43}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{66}", re.ASCII)
_SESSION = 20


def new_token(user_id: str) -> str:
    """Return a new token for a user: 256 random bits after the partition of the user's records."""
    return f"tw_{partition_of(user_id):02x}_{secrets.token_urlsafe(32)}"


def digest_of(token: str) -> str | None:
    """Return the two digits of a token's partition and its SHA-256 in hexadecimal; None when the text is no token."""
    found = _FORM.fullmatch(token)
    if found is None or partition_in(found[1]) >= PARTITIONS:
        return None
    return found[1] + hashlib.sha256(token.encode()).hexdigest()


def is_digest(text: str) -> bool:
    """Say whether a text is a digest with a partition that exists."""
    return _DIGEST.fullmatch(text) is not None and partition_in(text) < PARTITIONS


def partition_in(digest: str) -> int:
    """Return the partition in a digest."""
    return int(digest[:2], 16)


def session_id_of(digest: str) -> str:
    """Return the name by which a session is listed and revoked."""
    return digest[:_SESSION]
