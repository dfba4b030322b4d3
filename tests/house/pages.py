"""Documents, and the code on them as modules that run."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.house.project import ROOT, project_files

DOCUMENTS = {name.as_posix(): (ROOT / name).read_text("utf-8") for name in project_files() if name.suffix == ".md"}
"""The text of each document, by its path."""


def blocks(text: str, language: str) -> list[str]:
    """Return a document's code blocks in a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


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
