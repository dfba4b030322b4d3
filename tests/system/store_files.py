"""The contents of a store's files."""

from pathlib import Path


def stored_bytes(folder: Path) -> bytes:
    """Return everything that the store has written, even what has been deleted since."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
