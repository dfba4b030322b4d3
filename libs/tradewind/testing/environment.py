"""What a test takes from the environment: only the secrets of its nodes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_settings() -> Iterator[None]:
    """Hide the environment's settings for servers, workers and clients, except secrets; what is set meanwhile stays."""
    settings = {name for name in os.environ if name.startswith("TRADEWIND_")}
    hidden = {name: os.environ.pop(name) for name in settings if not name.startswith("TRADEWIND_SECRET")}
    try:
        yield
    finally:
        for name, value in hidden.items():
            os.environ.setdefault(name, value)


@contextmanager
def set_address(address: str) -> Iterator[None]:
    """Have clients go to `address`, unless something else is set meanwhile, which stays."""
    os.environ["TRADEWIND_ADDRESS"] = address
    try:
        yield
    finally:
        if os.environ.get("TRADEWIND_ADDRESS") == address:
            del os.environ["TRADEWIND_ADDRESS"]
