"""Everything that documents name exists: files, headings, modules to run, make targets."""

import fnmatch
import importlib.util
import os
import re
from functools import cache
from pathlib import Path

import pytest

from tests.house.project import ROOT, project_files

DOCUMENTS = [ROOT / name for name in project_files() if name.suffix == ".md"]
FOLDERS = ("libs", "services", "protos", "tests", "docs", "examples", "benchmarks", "tools", "k8s", r"\.ci")

# A path in text or code, such as libs/tradewind/server/clock.py or services/tradewind/<context>/domain/.
PATH = re.compile(rf"(?<![\w./<>:-])(?:{'|'.join(FOLDERS)})/[\w./<>*-]*")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
MODULE = re.compile(r"\bpython3? -m ((?:examples|benchmarks|tools|tradewind)(?:\.\w+)*)")
TARGET = re.compile(r"(?:`|^\$? *)make ([a-z][a-z-]*)", re.MULTILINE)

pytestmark = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def paths_in(text: str) -> set[str]:
    """Return whatever looks like a path of the project, without a sentence's full stop; `<name>` becomes `*`."""
    return {re.sub(r"<[^>]*>", "*", path.rstrip(".")) for path in PATH.findall(text)}


def links_in(text: str) -> set[tuple[str, str]]:
    """Return the links that stay inside the project, each with its file ("" for the same) and heading ("" for none)."""
    return {(file, heading) for file, heading in LINK.findall(text) if "://" not in file}


@cache
def headings(document: Path) -> set[str]:
    """Return a document's headings as they stand in links."""
    text = FENCED.sub("", document.read_text(encoding="utf-8"))
    named = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-") for name in named}


@cache
def names() -> set[str]:
    """Return the contents of a clone: every file and every folder that contains one."""
    files = project_files()
    return {path.as_posix() for file in files for path in (file, *file.parents)}


def exists(folder: Path, path: str) -> bool:
    """Tell whether a path or pattern below the folder matches something in a clone."""
    name = os.path.normpath((folder / path).relative_to(ROOT))
    return bool(fnmatch.filter(names(), name)) if "*" in name else name in names()


def test_paths_exist(document: Path) -> None:
    """A reader who follows a path finds the file."""
    text = document.read_text(encoding="utf-8")
    missing = {path for path in paths_in(text) if not exists(ROOT, path)}
    missing |= {file for file, _ in links_in(text) if not exists(document.parent, file)}

    assert sorted(missing) == []


def test_headings_exist(document: Path) -> None:
    """A reader who follows a link to a heading finds it."""
    links = [(file, heading) for file, heading in links_in(document.read_text(encoding="utf-8")) if heading]
    pages = {file: document if not file else (document.parent / file).resolve() for file, _ in links}

    assert [f"{file}#{heading}" for file, heading in links if heading not in headings(pages[file])] == []


def test_modules_can_be_run(document: Path) -> None:
    """A reader who types `python -m ...` gets a program."""
    modules = set(MODULE.findall(document.read_text(encoding="utf-8")))

    assert sorted(module for module in modules if importlib.util.find_spec(module) is None) == []


def test_make_targets_exist(document: Path) -> None:
    """A reader who types `make ...` finds the target."""
    rules = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    assert sorted(set(TARGET.findall(document.read_text(encoding="utf-8"))) - rules) == []
