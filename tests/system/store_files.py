"""What a store has written to its files."""

from pathlib import Path


def written(folder: Path) -> bytes:
    """Return everything that the store has written, whatever became of it since."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
