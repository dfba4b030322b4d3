"""What a test takes from the environment: only the secrets of its nodes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_settings() -> Iterator[None]:
    """Hide the environment's settings for servers, workers and clients, except secrets."""
    settings = {name for name in os.environ if name.startswith("TRADEWIND_")}
    hidden = {name: os.environ.pop(name) for name in settings if not name.startswith("TRADEWIND_SECRET")}
    try:
        yield
    finally:
        os.environ.update(hidden)
