"""Files that only their owner can read, and that are never seen half-written."""

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replace the file at `path`; the old one stays if that fails. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        # The system's error for a full disk names no file.
        raise OSError(f"cannot write {path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
