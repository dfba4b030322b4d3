"""The code on pages, as modules that run."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest


@contextmanager
def module_of(name: str, code: str, folder: Path) -> Iterator[ModuleType]:
    """Make `code` a module of this name while the block lasts; nodes in processes can import it too."""
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        try:
            yield import_module(name)
        finally:
            sys.modules.pop(name, None)
