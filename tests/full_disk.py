"""A disk that is full, as far as this process can tell."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def fullest_file(size: int) -> Iterator[None]:
    """Let no file of this process have more bytes, as if the disk were full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
