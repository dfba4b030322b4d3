"""The delay by which something that is planned begins later on purpose, to spread load."""

import hashlib


def delay_ms(name: str, planned_ms: int, jitter_ms: int) -> int:
    """Return a delay of less than `jitter_ms`: always the same for a name and planned time, on every machine."""
    if not jitter_ms:
        return 0
    digest = hashlib.sha1(f"{name}:{planned_ms}".encode(), usedforsecurity=False).hexdigest()
    return int(int(digest[:8], 16) / 2**32 * jitter_ms)
