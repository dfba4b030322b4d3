"""Digests that stand for several texts."""

import hashlib
from collections.abc import Iterable


def digest_of(parts: Iterable[str]) -> str:
    """Return the hex SHA-256 of texts, each with its length, so that no other texts have the same digest."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode(errors="surrogatepass")
        digest.update(b"%d:" % len(raw))
        digest.update(raw)
    return digest.hexdigest()
