"""Files that only their owner can read, and that are never there in part."""

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Put a file in the place of what was there, which stays when that fails. Raises OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        # What the system says of a full disk names no file.
        raise OSError(f"cannot write {path}: {error.strerror}") from None
    finally:
        beside.unlink(missing_ok=True)
