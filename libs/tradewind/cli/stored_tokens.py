"""The tokens that `tradewind login` keeps, by address, in a file that only its owner can read."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def stored_token(address: str) -> str | None:
    """Return the token kept for an address, None when there is none."""
    return _read().get(address)


def store_token(address: str, token: str | None) -> None:
    """Keep a token for an address, or forget it if None."""
    from tradewind.server.private_file import write_private

    path = _path()
    if path is None:
        raise ValueError("there is no home directory to keep the token in: set HOME, or XDG_CONFIG_HOME")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(path.parent):
        tokens = _read()
        tokens.pop(address, None)
        if token is not None:
            tokens[address] = token
        write_private(path, json.dumps(tokens))


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Keep out other commands, which would lose what this one writes between their reading and writing."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read() -> dict[str, str]:
    path = _path()
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: delete it, and log in again")
    return found


def _path() -> Path | None:
    """Return where the tokens are, None for a user without a home, as in containers under a uid of their own."""
    try:
        config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    except RuntimeError:
        return None
    return config / "tradewind" / "tokens.json"
